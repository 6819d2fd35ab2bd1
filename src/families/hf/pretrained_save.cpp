#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "base/io/check_input.h"
#include "base/io/files.h"
#include "families/hf/new_folder.h"
#include "families/sentence/sentence_config.h"
#include "families/stored_tensors.h"
#include "formats/tensors/safetensors_file.h"
#include "model/config/config_io.h"
#include "text/tokenizer/token_roles.h"

namespace rapt {
using namespace detail;
namespace {

namespace fs = std::filesystem;

/// A config with its defaults filled in and without keys that other formats do not have.
Json comparable(ModelConfig config) {
  config.kv_heads = config.kv_head_count();
  config.head_dim = config.dim();
  config.intermediate_size = config.ffn_dim();
  Json made = to_json(config);
  for (const char* key : {"seed", "recompute", "weight_type", "dropout", "attention_dropout"})
    made.erase(key);
  if (config.positions != ModelConfig::Positions::rope) {
    made.erase("rope_base");
    made.erase("rope_layout");
  }
  if (config.positions != ModelConfig::Positions::learned && !made.contains("rope_base"))
    made.erase("max_positions");
  return made;
}

/// Patterns of each layer, one by one.
ModelConfig spelled_out(ModelConfig config) {
  std::vector<Pattern> patterns;
  for (Index i = 0; i < config.layers; ++i) patterns.push_back(config.pattern(i));
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

void add_special_tokens(const ModelTokens& special, Json& config) {
  if (special.bos) config["bos_token_id"] = *special.bos;
  // RoBERTa counts positions from it: the family's own value stays.
  if (special.pad && !config.contains("pad_token_id")) config["pad_token_id"] = *special.pad;
  if (special.decoder_start) config["decoder_start_token_id"] = *special.decoder_start;
  if (special.eos.size() == 1) config["eos_token_id"] = special.eos[0];
  if (special.eos.size() > 1) config["eos_token_id"] = special.eos;
}

/// All families, the preferred one first.
std::vector<const Family*> ordered_families(const std::optional<std::string>& preferred) {
  std::vector<const Family*> made;
  for (const Family& family : families())
    made.insert(family.type == preferred ? made.begin() : made.end(), &family);
  return made;
}

struct Expression {
  const Family* family;
  Json config;
};

/// The first family whose config.json can express this config: what it writes reads back the same.
Expression expressed(const ModelConfig& given, const SaveOptions& options) {
  const ModelConfig config = spelled_out(given);
  std::vector<std::string> nearest;
  std::string nearest_type;
  for (const Family* each : ordered_families(options.family)) {
    const Family& family = *each;
    Json written = family.write(config);
    add_special_tokens(options.special_tokens, written);
    Fields fields(written, "config.json");
    ModelConfig read;
    try {
      read = spelled_out(family.read(fields));
    } catch (const std::runtime_error&) {
      continue;  // this family cannot express it
    }
    if (family.any_rope_layout) read.rope_layout = config.rope_layout;
    if (family.blank_type && config.type_vocab_size == 0) read.type_vocab_size = 0;
    if (!config.head) read.head = read.mlm_head = read.head_bias = false;
    const std::vector<std::string> keys = differences(comparable(config), comparable(read));
    if (keys.empty()) return {&family, written};
    if (nearest_type.empty() || keys.size() < nearest.size()) {
      nearest = keys;
      nearest_type = family.type;
    }
  }
  std::string list;
  for (const std::string& key : nearest) list += (list.empty() ? "" : ", ") + key;
  fail("save_pretrained: no known family can express this model; nearest is ", nearest_type,
       ", which cannot have ", list);
}

/// Tensors of a family's file, rounded to the requested type.
std::vector<DerivedTensor> stored_tensors(const Transformer& model, const Family& family,
                                          Type type) {
  const ModelConfig& config = model.config();
  const std::vector<NameRow> names = family.names(config);
  const std::string prefix = config.head ? family.prefix : "";
  std::vector<DerivedTensor> made;
  for (const Parameter& parameter : model.parameters()) {
    check(parameter.quantized.empty(), "save_pretrained: ", parameter.name,
          " is quantized; load the model with f32 weights");
    check(parameter.packed == nullptr, "save_pretrained: ", parameter.name,
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

/// One file, or shards with an index of their tensors.
void write_tensors(const std::string& folder, const std::vector<DerivedTensor>& tensors,
                   Index max_shard_bytes) {
  std::vector<std::vector<NamedTensor>> shards(1);
  Index bytes = 0, total = 0;
  for (const DerivedTensor& tensor : tensors) {
    const Index size =
        tensor.numbers.elements() * static_cast<Index>(size_of(tensor.numbers.type()));
    if (bytes > 0 && bytes + size > max_shard_bytes) {
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

/// A tokenizer_config.json with the special tokens.
Json tokenizer_config(const Tokenizer& tokenizer, const SaveOptions& options, bool types) {
  Json made{{"tokenizer_class", "PreTrainedTokenizerFast"}};
  // Versions of Transformers differ in whether they pass token types by default, and models in
  // whether they take them.
  std::vector<std::string> inputs = {"input_ids", "attention_mask"};
  if (types) inputs.insert(inputs.begin() + 1, "token_type_ids");
  made["model_input_names"] =
      options.model_input_names.empty() ? inputs : options.model_input_names;
  for (const TokenRole& role : token_roles)
    if (const auto id = tokenizer.special_tokens().*role.id)
      made[role.key] = tokenizer.id_to_token(*id);
  if (options.model_max_length) made["model_max_length"] = *options.model_max_length;
  return made;
}

void write_tokenizer(const std::string& folder, const Tokenizer& tokenizer, bool types,
                     const SaveOptions& options) {
  tokenizer.save(folder + "/tokenizer.json");
  replace_file(folder + "/tokenizer_config.json",
               tokenizer_config(tokenizer, options, types).dump(2) + "\n");
  if (options.chat_template) replace_file(folder + "/chat_template.jinja", *options.chat_template);
}

}  // namespace

void check_new_folder(const std::string& folder) {
  check(!folder.empty(), "the folder to write has no name, expected a new or empty folder");
  const std::string_view name =
      std::string_view(folder).substr(0, folder.find_last_not_of('/') + 1);
  check(!name.ends_with(".gguf") && !name.ends_with(".GGUF"), folder,
        ": is the name of a GGUF file, expected that of a new folder: GGUF is read, not written");
  std::error_code none;  // errors show below, or when the folder is made
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

SaveOptions save_options(const Pretrained& loaded) {
  SaveOptions options;
  options.special_tokens = loaded.special_tokens;
  // Runs of train() are not trained to embed texts.
  if (loaded.family != "rapt") options.pooling = loaded.pooling;
  options.chat_template = loaded.chat_template;
  options.model_max_length = loaded.model_max_length;
  options.model_input_names = loaded.model_input_names;
  options.family = loaded.family;
  return options;
}

void save_pretrained(const std::string& folder, const Transformer& model,
                     const std::optional<Tokenizer>& tokenizer, const SaveOptions& options) {
  Expression how = expressed(model.config(), options);
  how.config["dtype"] = torch_name(options.type);
  check_new_folder(folder);
  NewFolder parts(folder);
  write_tensors(parts.path(), stored_tensors(model, *how.family, options.type),
                options.max_shard_bytes);
  if (tokenizer)
    write_tokenizer(parts.path(), *tokenizer, model.config().type_vocab_size > 1, options);
  if (options.pooling && model.config().kind == ModelConfig::Kind::encoder)
    write_pooling(parts.path(), *options.pooling, options.type);
  replace_file(parts.path() + "/config.json", how.config.dump(2) + "\n");
  parts.finish();
}

}  // namespace rapt
