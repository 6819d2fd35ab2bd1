#include <algorithm>
#include <set>

#include "base/io/input.h"
#include "families/gguf/gguf_section.h"
#include "families/pretrained.h"
#include "formats/tensors/gguf_quantized.h"
#include "model/parameters.h"

namespace rapt {
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

/// Whether all parts of a matrix are stored in few bits, so that it can stay so.
bool few_bits(const GgufFile& file, const std::vector<StoredPart>& parts) {
  return std::all_of(parts.begin(), parts.end(), [&](const StoredPart& part) {
    const GgufTensor* tensor = file.find(part.name);
    return tensor != nullptr && tensor->format->numbers > 1;
  });
}

/// Tensors that nobody reads: those that would change the numbers are refused, the rest is told.
std::vector<std::string> unread(const GgufFile& file, const ModelConfig& config) {
  const GgufArchitecture& kind = architecture_of(file);
  const std::vector<NameRow> names = kind.names();
  std::set<std::string, std::less<>> read = {"rope_freqs.weight"};
  const ModelWeights plan = plan_weights(config);
  for (std::size_t i = 0; i < plan.parameters.size(); ++i)
    for (const StoredPart& part :
         parts_of(config, names, "", plan.parameters[i].name, plan.plans[i].shape))
      read.insert(part.name);
  std::vector<std::string> told;
  for (const GgufTensor& tensor : file.tensors()) {
    if (read.contains(tensor.name)) continue;
    for (const std::string& beginning : kind.refused)
      if (tensor.name.starts_with(beginning))
        fail_input(file.path(), ": ", printable(tensor.name), " is a weight that a ", kind.name,
                   " has no place for here; what it asks for is not computed");
    told.push_back(file.path() + ": " + printable(tensor.name).text() + " is not used");
  }
  return told;
}

ModelTokens tokens_of(const GgufMetadata& metadata, const ModelConfig& config,
                      const std::string& path) {
  const auto id = [&](const char* name) -> std::optional<std::int32_t> {
    const std::string key = std::string("tokenizer.ggml.") + name + "_token_id";
    if (!metadata.has(key)) return {};
    return checked_token(metadata.integer(key), config.vocabulary, path + ": " + key);
  };
  ModelTokens made;
  made.begin = id("bos");
  made.padding = id("padding");
  for (const char* name : {"eos", "eot"})
    if (const auto end = id(name)) made.ends.push_back(*end);
  return made;
}

}  // namespace

Pretrained read_gguf_model(const std::string& path, const LoadOptions& options) {
  const GgufFile file(path);
  const GgufArchitecture& kind = architecture_of(file);
  const ModelConfig config = config_of(file);
  StoredTensors tensors = tensors_of(file);
  tensors.finite = !options.allow_non_finite;
  const std::vector<NameRow> names = kind.names();
  check_layers(config, names, "", tensors);
  check_memory(tensors, options.weights);
  std::vector<std::string> notices = unread(file, config);
  const auto source = [&](Parameter& parameter, const Shape& shape) {
    const std::vector<StoredPart> parts = parts_of(config, names, "", parameter.name, shape);
    std::vector<std::string> stored;
    for (const StoredPart& part : parts) stored.push_back(part.name);
    const bool matrix = multiplied(parameter.name) && shape.rank() == 2;
    if (options.weights == WeightForm::stored && matrix && few_bits(file, parts)) {
      parameter.quantized = read_quantized(file, stored);
      if (parameter.quantized.shape() != shape)
        fail_input(path, ": ", stored.front(), " makes ", parameter.quantized.shape().text(),
                   ", expected ", shape.text());
      return;
    }
    take_weight(parameter, shape, tensors, parts, config, options.weights);
  };
  Pretrained made{
      kind.name, Transformer(config, source), {}, tokens_of(file.metadata(), config, path)};
  made.notices = std::move(notices);
  made.tokenizer_max_tokens = config.max_tokens;  // files have no other word for it
  if (kind.pooling != nullptr) made.pooling = kind.pooling(GgufSection(file, kind.name));
  if (file.metadata().has("tokenizer.chat_template"))
    made.chat_template = readable_template(
        std::string(file.metadata().text("tokenizer.chat_template")), path, made.notices);
  if (file.metadata().has("tokenizer.ggml.model"))
    made.tokenizer = gguf_tokenizer(file.metadata(), path);
  if (const std::string notice = gguf_tokenizer_notice(file.metadata(), path); !notice.empty())
    made.notices.push_back(notice);
  return made;
}

PretrainedOutline outline_gguf(const std::string& path) {
  const GgufFile file(path);
  const GgufArchitecture& kind = architecture_of(file);
  PretrainedOutline made{kind.name, config_of(file), {}};
  if (kind.pooling != nullptr) kind.pooling(GgufSection(file, kind.name));
  const StoredTensors tensors = tensors_of(file);
  check_layers(made.config, kind.names(), "", tensors);
  check_tensors(made.config, kind.names(), "", tensors);
  unread(file, made.config);
  for (const GgufTensor& tensor : file.tensors()) {
    PretrainedOutline::Stored& stored = made.stored[tensor.format->name];
    ++stored.tensors;
    stored.bytes += tensor.bytes;
  }
  return made;
}

}  // namespace rapt
