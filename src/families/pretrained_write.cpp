#include <filesystem>

#include "base/check.h"
#include "base/files.h"
#include "families/pretrained.h"
#include "formats/safetensors.h"
#include "model/config_io.h"

namespace rapt {
namespace {

/// A config with its defaults filled in and without what no file of another says.
Json comparable(ModelConfig config) {
  config.kv_heads = config.kv_count();
  config.head_dim = config.dim();
  config.ffn = config.hidden();
  Json made = to_json(config);
  for (const char* key : {"seed", "recompute", "weights", "dropout", "attention_dropout"})
    made.erase(key);
  if (config.positions != ModelConfig::Positions::rope) {
    made.erase("rope_base");
    made.erase("rope_layout");
  }
  if (config.positions != ModelConfig::Positions::learned && !made.contains("rope_base"))
    made.erase("max_tokens");
  return made;
}

/// Patterns of each layer, one by one.
ModelConfig spelled_out(ModelConfig config) {
  std::vector<std::string> patterns;
  for (Index i = 0; i < config.layers; ++i)
    patterns.push_back(
        Pattern::parse(config.patterns[static_cast<std::size_t>(i) % config.patterns.size()])
            .text());
  config.patterns = patterns;
  return config;
}

/// Keys on which two configs differ.
std::vector<std::string> differences(const Json& a, const Json& b) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : a.items())
    if (b.value(key, Json()) != value) keys.push_back(key + " = " + value.dump());
  return keys;
}

struct Expression {
  const Family* family;
  Json config;
};

/// The family whose config.json says all that this config says. Each is asked to write it and to
/// read that again; the one that gives the same back is it.
Expression expressed(const ModelConfig& given) {
  const ModelConfig config = spelled_out(given);
  std::vector<std::string> nearest;
  std::string nearest_type;
  for (const Family& family : families()) {
    Json written = family.write(config);
    Fields fields(written, "config.json");
    ModelConfig read;
    try {
      read = spelled_out(family.read(fields));
    } catch (const std::runtime_error&) {
      continue;  // this family has no words for it
    }
    if (!config.head) read.head = read.masked_head = read.head_bias = false;
    const std::vector<std::string> keys = differences(comparable(config), comparable(read));
    if (keys.empty()) return {&family, written};
    if (nearest_type.empty() || keys.size() < nearest.size()) {
      nearest = keys;
      nearest_type = family.type;
    }
  }
  std::string list;
  for (const std::string& key : nearest) list += (list.empty() ? "" : ", ") + key;
  fail("write_pretrained: no family of models that others read is like this one; nearest is ",
       nearest_type, ", which cannot have ", list);
}

void add_special(const ModelTokens& special, Json& config) {
  if (special.begin) config["bos_token_id"] = *special.begin;
  if (special.padding) config["pad_token_id"] = *special.padding;
  if (special.decoder_start) config["decoder_start_token_id"] = *special.decoder_start;
  if (special.ends.size() == 1) config["eos_token_id"] = special.ends[0];
  if (special.ends.size() > 1) config["eos_token_id"] = special.ends;
}

}  // namespace

void write_pretrained(const std::string& folder, const Transformer& model,
                      const std::optional<Tokenizer>& tokenizer, const ModelTokens& special) {
  Expression how = expressed(model.config());
  add_special(special, how.config);
  how.config["dtype"] = "float32";
  check(!std::filesystem::exists(folder) || std::filesystem::is_empty(folder),
        "write_pretrained: ", folder, " exists and is not empty");
  const ModelConfig& config = model.config();
  const std::vector<NameRow> names = how.family->names(config);
  const std::string prefix = config.head ? how.family->prefix : "";
  std::vector<Tensor> tensors;
  std::vector<std::string> stored;
  for (const Parameter& parameter : model.parameters())
    for (const StoredPart& part :
         parts_of(config, names, prefix, parameter.name, parameter.value.shape())) {
      tensors.push_back(scatter(parameter.value, part, config));
      stored.push_back(part.name);
    }
  if (how.family->derived != nullptr)
    for (DerivedTensor& derived : how.family->derived(config)) {
      stored.push_back(derived.name.starts_with('@') ? prefix + derived.name.substr(1)
                                                     : derived.name);
      tensors.push_back(std::move(derived.numbers));
    }
  std::vector<NamedTensor> named;
  for (std::size_t i = 0; i < tensors.size(); ++i) named.push_back({stored[i], tensors[i]});
  const std::string parts = folder + ".part";
  std::filesystem::remove_all(parts);
  std::filesystem::create_directories(parts);
  write_safetensors(parts + "/model.safetensors", named, {{"format", "pt"}});
  if (tokenizer) tokenizer->write(parts + "/tokenizer.json");
  replace_file(parts + "/config.json", how.config.dump(2) + "\n");
  std::filesystem::remove(folder);
  std::filesystem::rename(parts, folder);
}

}  // namespace rapt
