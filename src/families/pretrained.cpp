#include "families/family_config.h"
#include "families/gguf/gguf_model.h"
#include "families/model_tensors.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/io/check_input.h"
#include "base/memory_use.h"
#include "families/sentence/sentence_config.h"
#include "formats/tensors/safetensors_file.h"
#include "model/model_weights.h"
#include "text/tokenizer/tokenizer_folder.h"

namespace rapt {
using namespace detail;
namespace {

/// Digits in names are layers: "h.3.attn.bias" begins with "h.*.attn.bias".
bool begins(const std::string& name, const std::string& pattern) {
  std::size_t at = 0;
  for (const char c : pattern) {
    if (c == '*') {
      const std::size_t start = at;
      while (at < name.size() && name[at] >= '0' && name[at] <= '9') ++at;
      if (at == start) return false;
    } else if (at >= name.size() || name[at++] != c) {
      return false;
    }
  }
  return true;
}

/// What precedes the names of the base model: the family's prefix, or nothing in a model that was
/// saved without a head.
std::string prefix_in(const Family& family, const StoredTensors& tensors) {
  const std::string prefix = family.prefix;
  const bool there = std::any_of(tensors.names.begin(), tensors.names.end(),
                                 [&](const std::string& name) { return name.starts_with(prefix); });
  return there ? prefix : "";
}

/// The config without a head, if the file has none.
///
/// It may lack one if it says so, if the base model was saved alone, or if it was made for another
/// task.
ModelConfig without_missing_head(const FamilyConfig& what, const StoredTensors& tensors,
                                 const std::string& prefix) {
  ModelConfig config = what.config;
  const Family& family = *what.family;
  const bool alone = prefix.empty() && family.prefix[0] != '\0';
  if (!config.mlm_head && !alone && !what.architecture.ends_with("Model")) return config;
  const ModelWeights plan = plan_weights(config);
  for (std::size_t i = 0; i < plan.parameters.size(); ++i) {
    const std::string& name = plan.parameters[i].name;
    if (!name.starts_with("head.")) continue;
    const auto parts = parts_of(config, family.names(config), prefix, name, plan.plans[i].shape);
    if (tensors.has(parts.front().name)) return config;
    config.head = config.mlm_head = config.head_bias = false;
    return config;
  }
  return config;
}

/// Lists tensors that were not loaded, and warns unless they belong to other tasks.
///
/// A layer or a bias that config.json does not mention is an error: the two files do not match.
void warn_unused(const Family& family, const std::vector<NameRow>& names, const std::string& prefix,
                 const StoredTensors& tensors, const std::set<std::string>& used,
                 Pretrained& made) {
  for (const std::string& name : tensors.names) {
    if (used.contains(name)) continue;
    for (const NameRow& row : names)
      for (const std::string& theirs : row.theirs)
        if (theirs.find('*') != std::string::npos &&
            begins(name, (theirs.starts_with('@') ? prefix + theirs.substr(1) : theirs) + "."))
          fail_input(tensors.source, ": ", printable(name), " is a weight of a ", family.type,
                     " that config.json has no place for");
    const std::string bare = name.starts_with(prefix) ? name.substr(prefix.size()) : name;
    const auto among = [&](const std::vector<std::string>& patterns) {
      return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
        return begins(bare, pattern) || begins(name, pattern);
      });
    };
    if (among(family.unused)) continue;
    made.unused_tensors.push_back(name);
    if (!among(family.other_tasks))
      made.warnings.push_back(tensors.source + ": " + printable(name).text() +
                              " is not used by a model of type " + family.type);
  }
}

StoredTensors tensors_of(std::shared_ptr<const Weights> weights, const std::string& source) {
  StoredTensors tensors{source, weights->names(), {}, {}, {}, {}};
  tensors.shape = [weights](const std::string& name) {
    const StoredTensor* found = weights->find(name);
    return found == nullptr ? std::vector<Index>() : found->shape;
  };
  tensors.read = [weights](const std::string& name) { return weights->read(name); };
  tensors.type = [weights](const std::string& name) {
    const std::string& type = weights->find(name)->type;
    return type == "BF16" ? Type::bf16 : type == "F16" ? Type::f16 : Type::f32;
  };
  tensors.bytes = [weights](const std::string& name) { return weights->find(name)->bytes; };
  return tensors;
}

/// Warns if config.json names another type than the files have.
void warn_type(const FamilyConfig& what, const Weights& weights, const std::string& source,
               std::vector<std::string>& warnings) {
  const std::map<std::string, std::string> words = {
      {"F32", "float32"}, {"F16", "float16"}, {"BF16", "bfloat16"}};
  std::set<std::string> stored;
  for (const std::string& name : weights.names())
    if (const auto word = words.find(weights.find(name)->type); word != words.end())
      stored.insert(word->second);
  const bool known = what.dtype == "float32" || what.dtype == "float16" || what.dtype == "bfloat16";
  if (known && !stored.empty() && !stored.contains(what.dtype))
    warnings.push_back(source + ": config.json says " + what.dtype + ", but the weights are " +
                       *stored.begin() + ", which is used");
}

bool same_numbers(const StoredTensors& tensors, const std::string& one, const std::string& other) {
  if (tensors.shape(one) != tensors.shape(other)) return false;
  const Tensor a = tensors.read(one).converted(Type::f32);
  const Tensor b = tensors.read(other).converted(Type::f32);
  return std::equal(a.data(), a.data() + a.elements(), b.data());
}

/// A stored head that differs from the embedding is used even if config.json ties the two, as
/// Transformers does.
void untie_stored_head(ModelConfig& config, const StoredTensors& tensors,
                       const std::string& embedding, std::vector<std::string>& warnings) {
  const std::string head = "lm_head.weight";
  if (!config.tied_embeddings || !config.head || !tensors.has(head) || !tensors.has(embedding) ||
      same_numbers(tensors, head, embedding))
    return;
  config.tied_embeddings = false;
  warnings.push_back(tensors.source + ": config.json ties the head to the embedding, but " + head +
                     " differs from " + embedding + "; it is used");
}

}  // namespace

Pretrained detail::model_from(const FamilyConfig& what, const StoredTensors& tensors,
                              WeightType weight_type) {
  const Family& family = *what.family;
  const std::string prefix = prefix_in(family, tensors);
  check_layers(what.config, family.names(what.config), prefix, tensors);
  check_memory(tensors, weight_type);
  ModelConfig config = without_missing_head(what, tensors, prefix);
  const std::vector<NameRow> names = family.names(config);
  std::vector<std::string> warnings = what.warnings;
  untie_stored_head(config, tensors,
                    parts_of(config, names, prefix, "embedding.weight", {1, 1}).front().name,
                    warnings);
  std::set<std::string> used = {"lm_head.weight"};
  const auto source = [&](Parameter& parameter, const Shape& shape) {
    const std::vector<StoredPart> parts = parts_of(config, names, prefix, parameter.name, shape);
    for (const StoredPart& part : parts) used.insert(part.name);
    load_weight(parameter, shape, tensors, parts, config, weight_type);
  };
  Pretrained made{family.type, Transformer(config, source), {}, what.special_tokens};
  made.warnings = std::move(warnings);
  warn_unused(family, names, prefix, tensors, used, made);
  return made;
}

void detail::check_memory(const StoredTensors& tensors, WeightType weight_type) {
  const auto numbers = [&](const std::string& name) {
    double count = 1;
    for (const Index size : tensors.shape(name)) count *= static_cast<double>(size);
    return count;
  };
  const double per_number = weight_type == WeightType::f32    ? 4
                            : weight_type == WeightType::bf16 ? 2
                            : weight_type == WeightType::f16  ? 2
                            : weight_type == WeightType::q8_0 ? 34 / 32.
                            : weight_type == WeightType::q4_0 ? 18 / 32.
                                                              : 20 / 32.;
  double bytes = tensors.extra_bytes;
  for (const std::string& name : tensors.names)
    bytes += weight_type == WeightType::stored ? static_cast<double>(tensors.bytes(name))
                                               : numbers(name) * per_number;
  const Index most = machine_memory();
  if (most > 0 && bytes > static_cast<double>(most))
    fail_input(tensors.source, ": the weights take ", bytes * 1e-9, " GB, this machine has ",
               static_cast<double>(most) * 1e-9, " GB of memory");
}

bool detail::multiplied(const std::string& name) {
  return name.ends_with(".weight") && !name.ends_with("norm.weight") &&
         name.find("positions.") == std::string::npos && !name.starts_with("types.");
}

namespace {

/// The type that all parts are stored as; f32 if it differs, or if one is not there.
Type shared_type(const StoredTensors& tensors, const std::vector<StoredPart>& parts) {
  const auto type_of = [&](const StoredPart& part) {
    return tensors.has(part.name) ? tensors.type(part.name) : Type::f32;
  };
  const Type first = type_of(parts.front());
  const bool all = std::all_of(parts.begin(), parts.end(),
                               [&](const StoredPart& part) { return type_of(part) == first; });
  return all ? first : Type::f32;
}

}  // namespace

void detail::load_weight(Parameter& parameter, const Shape& shape, const StoredTensors& tensors,
                         const std::vector<StoredPart>& parts, const ModelConfig& config,
                         WeightType weight_type) {
  const bool matrix = multiplied(parameter.name) && shape.rank() == 2;
  const Type type = !matrix                             ? Type::f32
                    : weight_type == WeightType::bf16   ? Type::bf16
                    : weight_type == WeightType::f16    ? Type::f16
                    : weight_type == WeightType::stored ? shared_type(tensors, parts)
                                                        : Type::f32;
  parameter.value = gather(tensors, parts, shape, config, type);
  if (!matrix) return;
  if (weight_type == WeightType::q8_0) parameter.quantize(Quantization::q8_0);
  if (weight_type == WeightType::q4_0) parameter.quantize(Quantization::q4_0);
  if (weight_type == WeightType::q4_1) parameter.quantize(Quantization::q4_1);
}

namespace {

/// A GGUF file holds a whole model, a safetensors file only its weights.
bool is_folder(const std::string& path) {
  const bool folder = std::filesystem::is_directory(path);
  const bool bare = path.find('/') == std::string::npos && !path.ends_with(".gguf");
  check_input(folder || !bare || std::filesystem::exists(path), printable(path),
              ": no such file or folder, expected the path of a model");
  check_input(folder || !path.ends_with(".safetensors"), path,
              ": holds weights alone, expected the folder that has its config.json too");
  check_input(folder || !path.ends_with(".json"), path,
              ": is one file of a model, expected its folder");
  return folder;
}

std::vector<std::string> input_names_in(const std::string& path) {
  if (!std::filesystem::exists(path)) return {};
  return Fields(read_json(path), path).texts("model_input_names", std::vector<std::string>());
}

/// Whether the files have any weight of a layer of "encoder" or "decoder"; none if no row names its
/// layers.
std::optional<bool> has_layer(const std::string& stack, Index layer,
                              const std::vector<NameRow>& names, const std::string& prefix,
                              const StoredTensors& tensors) {
  std::optional<bool> there;
  for (const NameRow& row : names) {
    if (!row.ours.starts_with(stack + ".layers.*")) continue;
    std::string name = row.theirs.front();
    if (name.starts_with('@')) name = prefix + name.substr(1);
    name.replace(name.find('*'), 1, std::to_string(layer));
    const auto at = std::lower_bound(tensors.names.begin(), tensors.names.end(), name);
    there = at != tensors.names.end() && at->starts_with(name);
    if (*there) return there;
  }
  return there;
}

}  // namespace

Pretrained load_pretrained(const std::string& path, const LoadOptions& options) {
  if (!is_folder(path)) return load_gguf_model(path, options);
  const auto weights = std::make_shared<const Weights>(path);
  StoredTensors tensors = tensors_of(weights, path);
  tensors.finite = !options.allow_non_finite;
  tensors.extra_bytes = dense_bytes(path);
  const FamilyConfig what = read_family_config(path);
  Pretrained made = model_from(what, tensors, options.weight_type);
  warn_type(what, *weights, path, made.warnings);
  made.warnings.insert(made.warnings.end(), weights->notices().begin(), weights->notices().end());
  made.pooling = read_pooling(path, made.model.config().hidden_size, options);
  made.chat_template = read_chat_template(path, made.warnings);
  if (std::filesystem::exists(path + "/tokenizer.json")) {
    TokenizerFolder found = load_tokenizer_folder(path);
    made.tokenizer = found.tokenizer;
    made.model_max_length = found.model_max_length;
    made.model_input_names = input_names_in(path + "/tokenizer_config.json");
    made.warnings.insert(made.warnings.end(), found.warnings.begin(), found.warnings.end());
  }
  return made;
}

void detail::check_layers(const ModelConfig& config, const std::vector<NameRow>& names,
                          const std::string& prefix, const StoredTensors& tensors) {
  for (const std::string stack : {"encoder", "decoder"}) {
    const bool second = stack == "encoder" && config.kind == ModelConfig::Kind::encoder_decoder;
    const Index layers = second ? config.encoder_layers : config.layers;
    // The last one first: a config may name many more than there are.
    for (Index layer = layers - 1; layer >= 0; --layer)
      if (has_layer(stack, layer, names, prefix, tensors) == false)
        fail_input(tensors.source, ": there is no weight of layer ", layer, " of the ", layers,
                   " in the config");
  }
}

void detail::check_tensors(const ModelConfig& config, const std::vector<NameRow>& names,
                           const std::string& prefix, const StoredTensors& tensors) {
  const ModelWeights plan = plan_weights(config);
  for (std::size_t i = 0; i < plan.parameters.size(); ++i)
    for (const StoredPart& part :
         parts_of(config, names, prefix, plan.parameters[i].name, plan.plans[i].shape))
      check_part(tensors, part, plan.plans[i].shape);
}

PretrainedInfo pretrained_info(const std::string& path) {
  if (!is_folder(path)) return gguf_info(path);
  const FamilyConfig what = read_family_config(path);
  const auto weights = std::make_shared<const Weights>(path);
  const StoredTensors tensors = tensors_of(weights, path);
  const std::string prefix = prefix_in(*what.family, tensors);
  check_layers(what.config, what.family->names(what.config), prefix, tensors);
  PretrainedInfo made{what.family->type, without_missing_head(what, tensors, prefix), {}};
  check_tensors(made.config, what.family->names(made.config), prefix, tensors);
  for (const std::string& name : tensors.names) {
    const StoredTensor* tensor = weights->find(name);
    PretrainedInfo::Stored& stored = made.stored[tensor->type];
    ++stored.tensors;
    stored.bytes += tensor->bytes;
  }
  return made;
}

}  // namespace rapt
