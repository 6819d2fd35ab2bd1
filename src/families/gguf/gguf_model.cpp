#include <algorithm>
#include <set>

#include "base/io/check_input.h"
#include "families/family_config.h"
#include "families/gguf/gguf_model.h"
#include "families/gguf/gguf_section.h"
#include "families/model_tensors.h"
#include "formats/tensors/gguf_quantized.h"
#include "model/model_weights.h"

namespace rapt::detail {
namespace {

const GgufArchitecture& architecture_of(const GgufFile& file) {
  static const GgufArchitecture all[] = {gguf_llama(), gguf_qwen2(), gguf_qwen3(), gguf_bert(),
                                         gguf_gpt2()};
  const std::string_view name = file.metadata().text("general.architecture");
  std::string known;
  for (const GgufArchitecture& each : all) {
    if (name == each.name) return each;
    known += std::string(known.empty() ? "" : ", ") + each.name;
  }
  fail_input(file.path(), ": general.architecture is ", printable(name), ", expected one of ",
             known);
}

ModelConfig config_of(const GgufFile& file) {
  const GgufArchitecture& kind = architecture_of(file);
  ModelConfig config = kind.read(GgufSection(file, kind.name));
  try {
    check_config(config);
  } catch (const std::invalid_argument& error) {
    fail_input(file.path(), ": ", error.what());
  }
  return config;
}

StoredTensors tensors_of(const GgufFile& file) {
  StoredTensors tensors{file.path(), {}, {}, {}, {}, {}};
  for (const GgufTensor& tensor : file.tensors()) tensors.names.push_back(tensor.name);
  tensors.shape = [&file](const std::string& name) {
    std::vector<Index> sizes;
    const GgufTensor* found = file.find(name);
    for (Index i = 0; found != nullptr && i < found->shape.rank(); ++i)
      sizes.push_back(found->shape[i]);
    return sizes;
  };
  tensors.read = [&file](const std::string& name) { return file.read(name); };
  tensors.type = [&file](const std::string& name) {
    const std::string_view type = file.find(name)->format->name;
    return type == "BF16" ? Type::bf16 : type == "F16" ? Type::f16 : Type::f32;
  };
  tensors.bytes = [&file](const std::string& name) { return file.find(name)->bytes; };
  return tensors;
}

/// Whether all parts of a matrix are quantized, so that it can stay so.
bool is_quantized(const GgufFile& file, const std::vector<StoredPart>& parts) {
  return std::all_of(parts.begin(), parts.end(), [&](const StoredPart& part) {
    const GgufTensor* tensor = file.find(part.name);
    return tensor != nullptr && tensor->format->numbers > 1;
  });
}

/// Warnings about tensors that are not read. Refuses those that would change the numbers.
std::vector<std::string> unread(const GgufFile& file, const ModelConfig& config) {
  const GgufArchitecture& kind = architecture_of(file);
  const std::vector<NameRow> names = kind.names();
  std::set<std::string, std::less<>> read = {"rope_freqs.weight"};
  const ModelWeights plan = plan_weights(config);
  for (std::size_t i = 0; i < plan.parameters.size(); ++i)
    for (const StoredPart& part :
         parts_of(config, names, "", plan.parameters[i].name, plan.plans[i].shape))
      read.insert(part.name);
  std::vector<std::string> warnings;
  for (const GgufTensor& tensor : file.tensors()) {
    if (read.contains(tensor.name)) continue;
    for (const std::string& beginning : kind.refused)
      if (tensor.name.starts_with(beginning))
        fail_input(file.path(), ": ", printable(tensor.name), " is a weight that a ", kind.name,
                   " does not have in rapt; what it is for is not computed");
    warnings.push_back(file.path() + ": " + printable(tensor.name).text() + " is not used");
  }
  return warnings;
}

ModelTokens tokens_of(const GgufMetadata& metadata, const ModelConfig& config,
                      const std::string& path) {
  const auto id = [&](const char* name) -> std::optional<std::int32_t> {
    const std::string key = std::string("tokenizer.ggml.") + name + "_token_id";
    if (!metadata.has(key)) return {};
    return checked_token(metadata.integer(key), config.vocab_size.value_or(0), path + ": " + key);
  };
  ModelTokens made;
  made.bos = id("bos");
  made.pad = id("padding");
  for (const char* name : {"eos", "eot"})
    if (const auto eos = id(name)) made.eos.push_back(*eos);
  return made;
}

}  // namespace

Pretrained load_gguf_model(const std::string& path, const LoadOptions& options) {
  const GgufFile file(path);
  const GgufArchitecture& kind = architecture_of(file);
  const ModelConfig config = config_of(file);
  StoredTensors tensors = tensors_of(file);
  tensors.finite = !options.allow_non_finite;
  const std::vector<NameRow> names = kind.names();
  check_layers(config, names, "", tensors);
  check_memory(tensors, options.weight_type);
  std::vector<std::string> warnings = unread(file, config);
  const auto source = [&](Parameter& parameter, const Shape& shape) {
    const std::vector<StoredPart> parts = parts_of(config, names, "", parameter.name, shape);
    std::vector<std::string> stored;
    for (const StoredPart& part : parts) stored.push_back(part.name);
    const bool matrix = multiplied(parameter.name) && shape.rank() == 2;
    if (options.weight_type == WeightType::stored && matrix && is_quantized(file, parts)) {
      parameter.quantized = read_quantized(file, stored);
      if (parameter.quantized.shape() != shape)
        fail_input(path, ": ", stored.front(), " makes ", to_string(parameter.quantized.shape()),
                   ", expected ", to_string(shape));
      return;
    }
    load_weight(parameter, shape, tensors, parts, config, options.weight_type);
  };
  Pretrained made{
      kind.name, Transformer(config, source), {}, tokens_of(file.metadata(), config, path)};
  made.warnings = std::move(warnings);
  made.model_max_length = config.max_positions;  // files have no other key for it
  if (kind.pooling != nullptr) made.pooling = kind.pooling(GgufSection(file, kind.name));
  if (file.metadata().has("tokenizer.chat_template"))
    made.chat_template = readable_template(
        std::string(file.metadata().text("tokenizer.chat_template")), path, made.warnings);
  if (file.metadata().has("tokenizer.ggml.model"))
    made.tokenizer = gguf_tokenizer(file.metadata(), path);
  if (const std::string warning = gguf_tokenizer_warning(file.metadata(), path); !warning.empty())
    made.warnings.push_back(warning);
  return made;
}

PretrainedInfo gguf_info(const std::string& path) {
  const GgufFile file(path);
  const GgufArchitecture& kind = architecture_of(file);
  PretrainedInfo made{kind.name, config_of(file), {}};
  if (kind.pooling != nullptr) kind.pooling(GgufSection(file, kind.name));
  const StoredTensors tensors = tensors_of(file);
  check_layers(made.config, kind.names(), "", tensors);
  check_tensors(made.config, kind.names(), "", tensors);
  unread(file, made.config);
  for (const GgufTensor& tensor : file.tensors()) {
    PretrainedInfo::Stored& stored = made.stored[tensor.format->name];
    ++stored.tensors;
    stored.bytes += tensor.bytes;
  }
  return made;
}

}  // namespace rapt::detail
