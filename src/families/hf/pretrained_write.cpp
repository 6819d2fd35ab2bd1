#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "base/io/files.h"
#include "base/io/input.h"
#include "families/hf/new_folder.h"
#include "families/pretrained.h"
#include "families/sentence/sentence.h"
#include "formats/tensors/safetensors.h"
#include "model/config_io.h"
#include "text/tokenizer/tokenizer_names.h"

namespace rapt {
namespace {

namespace fs = std::filesystem;

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

void add_special(const ModelTokens& special, Json& config) {
  if (special.begin) config["bos_token_id"] = *special.begin;
  // In RoBERTa positions are counted from it: what the family wrote stays.
  if (special.padding && !config.contains("pad_token_id"))
    config["pad_token_id"] = *special.padding;
  if (special.decoder_start) config["decoder_start_token_id"] = *special.decoder_start;
  if (special.ends.size() == 1) config["eos_token_id"] = special.ends[0];
  if (special.ends.size() > 1) config["eos_token_id"] = special.ends;
}

/// All families, the given one first.
std::vector<const Family*> in_turn(const std::string& first) {
  std::vector<const Family*> made;
  for (const Family& family : families())
    made.insert(family.type == first ? made.begin() : made.end(), &family);
  return made;
}

struct Expression {
  const Family* family;
  Json config;
};

/// The family whose config.json says all that this config says. Each is asked to write it and to
/// read that again; the one that gives the same back is it.
Expression expressed(const ModelConfig& given, const WriteOptions& options) {
  const ModelConfig config = spelled_out(given);
  std::vector<std::string> nearest;
  std::string nearest_type;
  for (const Family* each : in_turn(options.family)) {
    const Family& family = *each;
    Json written = family.write(config);
    add_special(options.tokens, written);
    Fields fields(written, "config.json");
    ModelConfig read;
    try {
      read = spelled_out(family.read(fields));
    } catch (const std::runtime_error&) {
      continue;  // this family has no words for it
    }
    if (family.turns) read.rope_layout = config.rope_layout;
    if (family.blank_type && config.token_types == 0) read.token_types = 0;
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

}  // namespace

namespace {

/// Tensors of a family's file, rounded to the type that is asked for.
std::vector<DerivedTensor> stored_tensors(const Transformer& model, const Family& family,
                                          Type type) {
  const ModelConfig& config = model.config();
  const std::vector<NameRow> names = family.names(config);
  const std::string prefix = config.head ? family.prefix : "";
  std::vector<DerivedTensor> made;
  for (const Parameter& parameter : model.parameters()) {
    check(parameter.quantized.empty(), "write_pretrained: ", parameter.name,
          " is in few bits; read the model with f32 weights");
    check(parameter.packed == nullptr, "write_pretrained: ", parameter.name,
          " is packed, expected Transformer::unpack() before");
    for (const StoredPart& part :
         parts_of(config, names, prefix, parameter.name, parameter.value.shape()))
      made.push_back({part.name, scatter(parameter.value, part, config)});
  }
  if (family.derived != nullptr)
    for (DerivedTensor& derived : family.derived(config)) {
      if (derived.name.starts_with('@')) derived.name = prefix + derived.name.substr(1);
      made.push_back(std::move(derived));
    }
  if (type != Type::f32)
    for (DerivedTensor& tensor : made) tensor.numbers = tensor.numbers.converted(type);
  return made;
}

std::string shard_name(std::size_t index, std::size_t count) {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name;
}

/// One file, or several with an index of who is where.
void write_tensors(const std::string& folder, const std::vector<DerivedTensor>& tensors,
                   Index shard_bytes) {
  std::vector<std::vector<NamedTensor>> shards(1);
  Index bytes = 0, total = 0;
  for (const DerivedTensor& tensor : tensors) {
    const Index size =
        tensor.numbers.elements() * static_cast<Index>(size_of(tensor.numbers.type()));
    if (bytes > 0 && bytes + size > shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back({tensor.name, tensor.numbers});
    bytes += size;
    total += size;
  }
  if (shards.size() == 1) {
    write_safetensors(folder + "/model.safetensors", shards[0], {{"format", "pt"}});
    return;
  }
  Json places = Json::object();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shard_name(i, shards.size());
    write_safetensors(folder + "/" + name, shards[i], {{"format", "pt"}});
    for (const NamedTensor& tensor : shards[i]) places[tensor.name] = name;
  }
  const Json index{{"metadata", {{"total_size", total}}}, {"weight_map", places}};
  replace_file(folder + "/model.safetensors.index.json", index.dump(2) + "\n");
}

const char* torch_name(Type type) {
  return type == Type::bf16 ? "bfloat16" : type == Type::f16 ? "float16" : "float32";
}

/// Names of the tokens that have a part to play, for those who fill batches up with them.
Json tokenizer_config(const Tokenizer& tokenizer, const WriteOptions& options, bool types) {
  Json made{{"tokenizer_class", "PreTrainedTokenizerFast"}};
  // Versions of Transformers differ in whether they tell by themselves which of two texts a token
  // belongs to, and models in whether they want to hear it.
  std::vector<std::string> inputs = {"input_ids", "attention_mask"};
  if (types) inputs.insert(inputs.begin() + 1, "token_type_ids");
  made["model_input_names"] = options.tokenizer_inputs.empty() ? inputs : options.tokenizer_inputs;
  for (const TokenRole& role : token_roles)
    if (const auto id = tokenizer.special().*role.id) made[role.key] = tokenizer.spelling_of(*id);
  if (options.tokenizer_max_tokens > 0) made["model_max_length"] = options.tokenizer_max_tokens;
  return made;
}

void write_tokenizer(const std::string& folder, const Tokenizer& tokenizer, bool types,
                     const WriteOptions& options) {
  tokenizer.write(folder + "/tokenizer.json");
  replace_file(folder + "/tokenizer_config.json",
               tokenizer_config(tokenizer, options, types).dump(2) + "\n");
  if (!options.chat_template.empty())
    replace_file(folder + "/chat_template.jinja", options.chat_template);
}

}  // namespace

void check_new_folder(const std::string& folder) {
  check(!folder.empty(), "the folder to write has no name, expected a new or empty folder");
  const std::string_view name =
      std::string_view(folder).substr(0, folder.find_last_not_of('/') + 1);
  check(!name.ends_with(".gguf") && !name.ends_with(".GGUF"), folder,
        ": is the name of a GGUF file, expected that of a new folder: GGUF is read, not written");
  std::error_code none;  // what cannot be looked at is told below, or when it is made
  const bool there = fs::exists(folder, none), is_folder = fs::is_directory(folder, none);
  check(!there || is_folder, folder, ": is a file, expected a new or empty folder");
  check(!there || fs::is_empty(folder, none), folder,
        ": is not empty, expected a new or empty folder");
  fs::path above = fs::absolute(folder).lexically_normal();
  while (!fs::exists(above, none) && above.has_relative_path()) above = above.parent_path();
  check_input(fs::is_directory(above, none), folder, ": cannot be made, ", above.string(),
              " is a file");
  check_input(access(above.c_str(), W_OK | X_OK) == 0, folder,
              ": cannot be made, this user may not write to ", above.string());
}

WriteOptions write_options(const Pretrained& loaded) {
  WriteOptions options;
  options.tokens = loaded.special;
  // A run of ours was never taught to give vectors.
  if (loaded.family != "rapt") options.pooling = loaded.pooling;
  options.chat_template = loaded.chat_template;
  options.tokenizer_max_tokens = loaded.tokenizer_max_tokens;
  options.tokenizer_inputs = loaded.tokenizer_inputs;
  options.family = loaded.family;
  return options;
}

void write_pretrained(const std::string& folder, const Transformer& model,
                      const std::optional<Tokenizer>& tokenizer, const WriteOptions& options) {
  Expression how = expressed(model.config(), options);
  how.config["dtype"] = torch_name(options.type);
  check_new_folder(folder);
  NewFolder parts(folder);
  write_tensors(parts.path(), stored_tensors(model, *how.family, options.type),
                options.shard_bytes);
  if (tokenizer) write_tokenizer(parts.path(), *tokenizer, model.config().token_types > 1, options);
  if (options.pooling && model.config().kind == ModelConfig::Kind::encoder)
    write_pooling(parts.path(), *options.pooling, options.type);
  replace_file(parts.path() + "/config.json", how.config.dump(2) + "\n");
  parts.finish();
}

}  // namespace rapt
