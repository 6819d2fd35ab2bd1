#include <algorithm>
#include <filesystem>

#include "base/io/check_input.h"
#include "families/family_config.h"
#include "families/gguf/gguf_model.h"
#include "formats/tensors/gguf_file.h"
#include "text/tokenizer/tokenizer_folder.h"
#include "text/tokenizer/tokenizer_parts.h"

namespace rapt {
using namespace detail;
namespace {

/// Keys below tokenizer.ggml, where they are there.
class Keys {
 public:
  explicit Keys(const GgufMetadata& metadata) : metadata_(metadata) {}

  std::string key(const char* name) const { return std::string("tokenizer.ggml.") + name; }
  bool has(const char* name) const { return metadata_.has(key(name)); }
  std::string text(const char* name) const {
    return has(name) ? std::string(metadata_.text(key(name))) : "";
  }
  std::vector<std::string> texts(const char* name) const {
    if (!has(name)) return {};
    const std::vector<std::string_view> found = metadata_.texts(key(name));
    return {found.begin(), found.end()};
  }
  std::optional<bool> boolean(const char* name) const {
    if (!has(name)) return {};
    return metadata_.boolean(key(name));
  }
  std::optional<std::int32_t> id(const char* name) const {
    const std::string full = std::string(name) + "_token_id";
    if (!has(full.c_str())) return {};
    return checked_token(metadata_.integer(key(full.c_str())), Index{1} << 31, key(full.c_str()));
  }

 private:
  const GgufMetadata& metadata_;
};

}  // namespace

Tokenizer detail::gguf_tokenizer(const GgufMetadata& metadata, const std::string& source) {
  const Keys keys(metadata);
  TokenizerParts parts;
  parts.model = keys.text("model");
  check_input(parts.model != "gpt2" || keys.has("merges"), source, ": there is no ",
              keys.key("merges"), ", without which text becomes single bytes");
  parts.pre = keys.text("pre");
  parts.tokens = keys.texts("tokens");
  parts.merges = keys.texts("merges");
  if (keys.has("scores")) parts.scores = metadata.numbers(keys.key("scores"));
  if (keys.has("token_type")) parts.types = metadata.integers(keys.key("token_type"));
  parts.special = {.unk = keys.id("unknown"),
                   .bos = keys.id("bos"),
                   .eos = keys.id("eos"),
                   .pad = keys.id("padding"),
                   .cls = keys.id("cls"),
                   .sep = keys.id("seperator"),  // as the format spells it
                   .mask = keys.id("mask")};
  parts.add_bos = keys.boolean("add_bos_token");
  parts.add_eos = keys.boolean("add_eos_token");
  parts.add_space_prefix = keys.boolean("add_space_prefix").value_or(true);
  parts.lowercase = keys.boolean("normalizer.lowercase").value_or(true);
  parts.strip_accents = keys.boolean("normalizer.strip_accents");
  return tokenizer_from_parts(std::move(parts), source);
}

std::string detail::gguf_tokenizer_warning(const GgufMetadata& metadata,
                                           const std::string& source) {
  const Keys keys(metadata);
  if (keys.text("model") != "bert" || keys.has("normalizer.lowercase")) return "";
  const auto is_capital = [](char letter) { return letter >= 'A' && letter <= 'Z'; };
  for (const std::string& token : keys.texts("tokens"))
    if (!token.starts_with('[') && std::any_of(token.begin(), token.end(), is_capital))
      return source +
             ": texts are lowercased, since the file does not say otherwise, but its token " +
             printable(token).text() + " has capitals";
  return "";
}

Tokenizer load_tokenizer(const std::string& path) {
  if (std::filesystem::is_directory(path)) return load_tokenizer_folder(path).tokenizer;
  if (!path.ends_with(".gguf")) return Tokenizer::load(path);
  return gguf_tokenizer(GgufFile(path).metadata(), path);
}

}  // namespace rapt
