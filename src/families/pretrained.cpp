#include "families/pretrained.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/input.h"
#include "formats/safetensors.h"
#include "model/parameters.h"

namespace rapt {
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

/// What stands before the names of the body: the family's prefix, or nothing in a model that was
/// saved without a head.
std::string prefix_in(const Family& family, const StoredTensors& tensors) {
  const std::string prefix = family.prefix;
  const bool there = std::any_of(tensors.names.begin(), tensors.names.end(),
                                 [&](const std::string& name) { return name.starts_with(prefix); });
  return there ? prefix : "";
}

/// The config without what its head would need, if the file has no head.
///
/// It may lack one if it says so, or is a body that was saved alone, or was made for another task.
ModelConfig without_missing_head(const FamilyConfig& what, const StoredTensors& tensors,
                                 const std::string& prefix) {
  ModelConfig config = what.config;
  const Family& family = *what.family;
  const bool alone = prefix.empty() && family.prefix[0] != '\0';
  if (!config.masked_head && !alone && !what.architecture.ends_with("Model")) return config;
  const ModelWeights plan = plan_weights(config);
  for (std::size_t i = 0; i < plan.parameters.size(); ++i) {
    const std::string& name = plan.parameters[i].name;
    if (!name.starts_with("head.")) continue;
    const auto parts = parts_of(config, family.names(config), prefix, name, plan.plans[i].shape);
    if (tensors.has(parts.front().name)) return config;
    config.head = config.masked_head = config.head_bias = false;
    return config;
  }
  return config;
}

/// Tensors that nobody asked for: those of other tasks are left alone, the rest is told.
///
/// A layer or a bias that config.json does not speak of is no such tensor: the two do not belong
/// together.
void tell_unused(const Family& family, const std::vector<NameRow>& names, const std::string& prefix,
                 const StoredTensors& tensors, const std::set<std::string>& used,
                 std::vector<std::string>& notices) {
  for (const std::string& name : tensors.names) {
    if (used.contains(name)) continue;
    for (const NameRow& row : names)
      for (const std::string& theirs : row.theirs)
        if (theirs.find('*') != std::string::npos &&
            begins(name, (theirs.starts_with('@') ? prefix + theirs.substr(1) : theirs) + "."))
          fail_input(tensors.source, ": ", name, " is a weight of a ", family.type,
                     " that config.json has no place for");
    const std::string bare = name.starts_with(prefix) ? name.substr(prefix.size()) : name;
    const bool known = std::any_of(
        family.unused.begin(), family.unused.end(),
        [&](const std::string& pattern) { return begins(bare, pattern) || begins(name, pattern); });
    if (!known)
      notices.push_back(tensors.source + ": " + name + " is not used by a model of type " +
                        family.type);
  }
}

StoredTensors tensors_of(std::shared_ptr<const Weights> weights, const std::string& source) {
  StoredTensors tensors{source, weights->names(), {}, {}, {}};
  tensors.shape = [weights](const std::string& name) {
    const StoredTensor* found = weights->find(name);
    return found == nullptr ? std::vector<Index>() : found->shape;
  };
  tensors.read = [weights](const std::string& name) { return weights->read(name); };
  tensors.is_bf16 = [weights](const std::string& name) {
    return weights->find(name)->type == "BF16";
  };
  return tensors;
}

/// The same weights under two names: one that is stored twice must be the same twice.
void check_tied(const ModelConfig& config, const StoredTensors& tensors, const std::string& copy,
                const Transformer& model, std::vector<std::string>& notices) {
  if (!config.tied || !config.head || !tensors.has(copy)) return;
  if (!model.parameters()[0].quantized.empty()) return;
  const Tensor stored = tensors.read(copy).converted(Type::f32);
  const Tensor embedding = model.parameters()[0].value.converted(Type::f32);
  if (stored.shape() != embedding.shape() ||
      !std::equal(stored.data(), stored.data() + stored.elements(), embedding.data()))
    notices.push_back(tensors.source + ": " + copy +
                      " differs from the embedding, but config.json ties them; the embedding is "
                      "used");
}

}  // namespace

Pretrained model_from(const FamilyConfig& what, const StoredTensors& tensors, WeightForm weights) {
  const Family& family = *what.family;
  const std::string prefix = prefix_in(family, tensors);
  check_layers(what.config, family.names(what.config), prefix, tensors);
  const ModelConfig config = without_missing_head(what, tensors, prefix);
  const std::vector<NameRow> names = family.names(config);
  std::set<std::string> used;
  const auto source = [&](Parameter& parameter, const Shape& shape) {
    const std::vector<StoredPart> parts = parts_of(config, names, prefix, parameter.name, shape);
    for (const StoredPart& part : parts) used.insert(part.name);
    take_weight(parameter, shape, tensors, parts, config, weights);
  };
  Pretrained made{family.type, Transformer(config, source), {}, what.special};
  made.notices = what.notices;
  check_tied(config, tensors, "lm_head.weight", made.model, made.notices);
  used.insert("lm_head.weight");
  tell_unused(family, names, prefix, tensors, used, made.notices);
  return made;
}

bool multiplied(const std::string& name) {
  return name.ends_with(".weight") && !name.ends_with("norm.weight") &&
         name.find("positions.") == std::string::npos && !name.starts_with("types.");
}

void take_weight(Parameter& parameter, const Shape& shape, const StoredTensors& tensors,
                 const std::vector<StoredPart>& parts, const ModelConfig& config, WeightForm form) {
  const bool matrix = multiplied(parameter.name) && shape.rank() == 2;
  const auto stored_so = [&](const StoredPart& part) {
    return tensors.has(part.name) && tensors.is_bf16(part.name);
  };
  const bool bf16 =
      matrix && (form == WeightForm::bf16 || (form == WeightForm::stored &&
                                              std::all_of(parts.begin(), parts.end(), stored_so)));
  parameter.value = gather(tensors, parts, shape, config, bf16 ? Type::bf16 : Type::f32);
  if (!matrix) return;
  if (form == WeightForm::q8_0) parameter.quantize(Quantization::q8_0);
  if (form == WeightForm::q4_0) parameter.quantize(Quantization::q4_0);
  if (form == WeightForm::q4_1) parameter.quantize(Quantization::q4_1);
}

Pretrained read_pretrained(const std::string& path, const LoadOptions& options) {
  if (!std::filesystem::is_directory(path)) return read_gguf_model(path, options);
  const auto weights = std::make_shared<const Weights>(path);
  StoredTensors tensors = tensors_of(weights, path);
  tensors.finite = !options.allow_non_finite;
  Pretrained made = model_from(read_family_config(path), tensors, options.weights);
  made.notices.insert(made.notices.end(), weights->notices().begin(), weights->notices().end());
  made.pooling = read_pooling(path);
  made.chat_template = read_chat_template(path);
  if (std::filesystem::exists(path + "/tokenizer.json"))
    made.tokenizer = Tokenizer::read(path + "/tokenizer.json");
  return made;
}

void check_layers(const ModelConfig& config, const std::vector<NameRow>& names,
                  const std::string& prefix, const StoredTensors& tensors) {
  for (const std::string stack : {"encoder", "decoder"}) {
    const bool second = stack == "encoder" && config.kind == ModelConfig::Kind::encoder_decoder;
    const Index layers = second ? config.encoder_layers : config.layers;
    const std::string last = std::to_string(layers - 1);
    bool asked = false, there = false;
    for (const NameRow& row : names) {
      if (!row.ours.starts_with(stack + ".layers.*")) continue;
      asked = true;
      std::string name = row.theirs.front();
      if (name.starts_with('@')) name = prefix + name.substr(1);
      name.replace(name.find('*'), 1, last);
      const auto at = std::lower_bound(tensors.names.begin(), tensors.names.end(), name);
      there = there || (at != tensors.names.end() && at->starts_with(name));
    }
    if (asked && !there)
      fail_input(tensors.source, ": there is no weight of layer ", last, " of the ", layers,
                 " that the config speaks of");
  }
}

void check_tensors(const ModelConfig& config, const std::vector<NameRow>& names,
                   const std::string& prefix, const StoredTensors& tensors) {
  const ModelWeights plan = plan_weights(config);
  for (std::size_t i = 0; i < plan.parameters.size(); ++i)
    for (const StoredPart& part :
         parts_of(config, names, prefix, plan.parameters[i].name, plan.plans[i].shape))
      check_part(tensors, part, plan.plans[i].shape);
}

PretrainedOutline outline_pretrained(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return outline_gguf(path);
  const FamilyConfig what = read_family_config(path);
  const auto weights = std::make_shared<const Weights>(path);
  const StoredTensors tensors = tensors_of(weights, path);
  const std::string prefix = prefix_in(*what.family, tensors);
  check_layers(what.config, what.family->names(what.config), prefix, tensors);
  PretrainedOutline made{what.family->type, without_missing_head(what, tensors, prefix), {}};
  check_tensors(made.config, what.family->names(made.config), prefix, tensors);
  for (const std::string& name : tensors.names) {
    const StoredTensor* tensor = weights->find(name);
    PretrainedOutline::Stored& stored = made.stored[tensor->type];
    ++stored.tensors;
    stored.bytes += tensor->bytes;
  }
  return made;
}

}  // namespace rapt
