#include "text/tokenizer/tokenizer_folder.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "formats/config/fields.h"
#include "text/tokenizer/token_roles.h"

namespace rapt::detail {
namespace {

/// A spelling, and the file it is from.
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

/// Huge numbers mean no limit: Transformers writes 1e30.
std::optional<Index> max_length_in(Fields& fields) {
  const double most = fields.real("model_max_length", {}, 0);
  if (most < 1 || most >= 0x1p31) return std::nullopt;
  return static_cast<Index>(most);
}

/// A role that is null or missing has no token, whatever its usual spelling: files that name roles
/// name all of them.
void assign_roles(const Names& names, Tokenizer::Impl& impl, TokenizerFolder& made) {
  const bool named = std::any_of(names.begin(), names.end(),
                                 [](const auto& entry) { return !entry.second.spelling.empty(); });
  if (!named) return;
  SpecialTokens special;
  for (const TokenRole& role : token_roles) {
    const auto found = names.find(role.key);
    if (found == names.end() || found->second.spelling.empty()) continue;
    const auto& [spelling, source] = found->second;
    const std::optional<std::int32_t> id = made.tokenizer.token_to_id(spelling);
    if (id && made.tokenizer.id_to_token(*id) == spelling)
      special.*role.id = id;
    else
      made.warnings.push_back(source + ": " + role.key + " is " + printable(spelling).text() +
                              ", which is ignored: it is not in the vocabulary");
  }
  impl.special = special;
}

}  // namespace

TokenizerFolder load_tokenizer_folder(const std::string& folder) {
  const std::shared_ptr<Tokenizer::Impl> impl = load_tokenizer_impl(folder + "/tokenizer.json");
  TokenizerFolder made{Tokenizer::Impl::made(impl)};
  Names names;
  bool complete = false;  // newer files need no special_tokens_map.json
  if (const std::string path = folder + "/tokenizer_config.json"; std::filesystem::exists(path)) {
    Fields fields(read_json(path), path);
    add_names(fields, path, names);
    made.model_max_length = max_length_in(fields);
    complete = fields.has("added_tokens_decoder");
  }
  const std::string older = folder + "/special_tokens_map.json";
  if (!complete && std::filesystem::exists(older)) {
    Fields fields(read_json(older), older);
    add_names(fields, older, names);
  }
  assign_roles(names, *impl, made);
  return made;
}

}  // namespace rapt::detail
