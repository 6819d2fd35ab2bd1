#include "text/tokenizer/tokenizer_folder.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "formats/config/fields.h"
#include "text/tokenizer/tokenizer_names.h"

namespace rapt {
namespace {

/// A spelling, and the file that says it.
struct Named {
  std::string spelling, source;
};
using Names = std::map<std::string, Named>;  // by key

/// A text, or an object that has it as its content.
std::string spelling_in(Fields& fields, const char* key) {
  return fields.value(key).is_object() ? fields.object(key).text("content") : fields.text(key, "");
}

void add_names(Fields& fields, const std::string& source, Names& names) {
  for (const TokenRole& role : token_roles)
    if (fields.contains(role.key)) names[role.key] = {spelling_in(fields, role.key), source};
}

/// Numbers that nobody reaches stand for none: Transformers writes 1e30.
Index max_tokens_in(Fields& fields) {
  const double most = fields.real("model_max_length", {}, 0);
  return most >= 1 && most < 0x1p31 ? static_cast<Index>(most) : 0;
}

/// Null takes a token its role, be its spelling ever so telling; so does silence, as the files are
/// whole where they speak of roles at all.
void give_roles(const Names& names, Tokenizer::Body& body, TokenizerFolder& made) {
  const bool named = std::any_of(names.begin(), names.end(),
                                 [](const auto& entry) { return !entry.second.spelling.empty(); });
  if (!named) return;
  SpecialTokens special;
  for (const TokenRole& role : token_roles) {
    const auto found = names.find(role.key);
    if (found == names.end() || found->second.spelling.empty()) continue;
    const auto& [spelling, source] = found->second;
    const std::optional<std::int32_t> id = made.tokenizer.id_of(spelling);
    if (id && made.tokenizer.spelling_of(*id) == spelling)
      special.*role.id = id;
    else
      made.notices.push_back(source + ": " + role.key + " is " + printable(spelling).text() +
                             ", which is passed over: it is not in the vocabulary");
  }
  body.special = special;
}

}  // namespace

TokenizerFolder read_tokenizer_folder(const std::string& folder) {
  const std::shared_ptr<Tokenizer::Body> body = read_tokenizer_body(folder + "/tokenizer.json");
  TokenizerFolder made{Tokenizer::Body::made(body)};
  Names names;
  bool complete = false;  // the older file is for those that had it alone
  if (const std::string path = folder + "/tokenizer_config.json"; std::filesystem::exists(path)) {
    Fields fields(read_json(path), path);
    add_names(fields, path, names);
    made.max_tokens = max_tokens_in(fields);
    complete = fields.has("added_tokens_decoder");
  }
  const std::string older = folder + "/special_tokens_map.json";
  if (!complete && std::filesystem::exists(older)) {
    Fields fields(read_json(older), older);
    add_names(fields, older, names);
  }
  give_roles(names, *body, made);
  return made;
}

}  // namespace rapt
