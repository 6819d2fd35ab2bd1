#include <algorithm>
#include <cmath>
#include <set>

#include "base/input.h"
#include "families/pretrained.h"
#include "formats/gguf_quantized.h"

namespace rapt {
namespace {

/// Reads values under the name of the file's architecture: "llama.block_count".
class Section {
 public:
  Section(const GgufFile& file, std::string name) : file_(file), name_(std::move(name)) {}

  std::string key(const char* of) const { return name_ + "." + of; }
  bool has(const char* of) const { return file_.metadata().has(key(of)); }
  Index integer(const char* of, Bounds<Index> range) const {
    const Index number = file_.metadata().integer(key(of));
    if (number < range.lowest || number > range.highest)
      fail_input(file_.path(), ": ", key(of), " is ", number, ", expected ", range.lowest, " to ",
                 range.highest);
    return number;
  }
  Index integer(const char* of, Bounds<Index> range, Index otherwise) const {
    return has(of) ? integer(of, range) : otherwise;
  }
  double number(const char* of, double otherwise, Bounds<double> range = {}) const {
    const double number = has(of) ? file_.metadata().number(key(of)) : otherwise;
    if (!std::isfinite(number)) fail_input(file_.path(), ": ", key(of), " is not a finite number");
    if (number < range.lowest || number > range.highest)
      fail_input(file_.path(), ": ", key(of), " is ", number, ", expected ", range.lowest, " to ",
                 range.highest);
    return number;
  }

 private:
  const GgufFile& file_;
  std::string name_;
};

constexpr Bounds<Index> sizes = {1, Index{1} << 31};

/// Frequencies may be divided by a tensor, one number for each pair.
RopeScaling scaling_of(const GgufFile& file, const Section& section, const ModelConfig& config) {
  if (const GgufTensor* stored = file.find("rope_freqs.weight")) {
    if (stored->shape != Shape{config.dim() / 2})
      fail_input(file.path(), ": rope_freqs.weight has shape ", stored->shape, ", expected [",
                 config.dim() / 2, "]");
    const Tensor factors = file.read("rope_freqs.weight");
    LongRope made;
    made.short_factors.assign(factors.data(), factors.data() + factors.elements());
    made.long_factors = made.short_factors;
    made.trained_tokens = config.max_tokens;
    made.attention_factor = 1;
    return made;
  }
  const std::string type(section.has("rope.scaling.type")
                             ? file.metadata().text(section.key("rope.scaling.type"))
                         : section.has("rope.scaling.factor") ? "linear"
                                                              : "none");
  const double factor = section.number("rope.scaling.factor", 1);
  const Index trained =
      section.integer("rope.scaling.original_context_length", sizes, config.max_tokens);
  if (type == "none") return {};
  if (type == "linear") return LinearRope{factor};
  if (type == "yarn") return YarnRope{factor, trained};
  fail_input(file.path(), ": ", section.key("rope.scaling.type"), " is ", printable(type),
             ", expected none, linear or yarn");
}

/// Keys that would change the numbers in ways that are not computed here.
void refuse_others(const GgufFile& file, const Section& section, const ModelConfig& config) {
  const auto neutral = [&](const char* key, double value) {
    if (section.has(key) && section.number(key, value) != value)
      fail_input(file.path(), ": ", section.key(key), " is not ", value,
                 "; nothing else is computed here");
  };
  neutral("expert_count", 0);
  neutral("rope.scale_linear", 1);
  neutral("rope.scaling.attn_factor", 1);
  neutral("attention.value_length", static_cast<double>(config.dim()));
  neutral("logit_scale", 1);
  if (section.has("attention.causal") && !file.metadata().boolean(section.key("attention.causal")))
    fail_input(file.path(), ": ", section.key("attention.causal"),
               " is false; expected a model that writes");
  for (const GgufTensor& tensor : file.tensors())
    if (tensor.name.starts_with("blk.") && tensor.name.ends_with(".bias") &&
        tensor.name.find(".attn_q.") == std::string::npos &&
        tensor.name.find(".attn_k.") == std::string::npos &&
        tensor.name.find(".attn_v.") == std::string::npos)
      fail_input(file.path(), ": ", printable(tensor.name), " is a bias that is not added here");
}

std::string architecture_of(const GgufFile& file) {
  const std::string name(file.metadata().text("general.architecture"));
  if (name != "llama" && name != "qwen2" && name != "qwen3")
    fail_input(file.path(), ": general.architecture is ", printable(name),
               ", expected llama, qwen2 or qwen3");
  return name;
}

/// Rows of queries and keys lie pair by pair in files of llama: instead of moving them, rope turns
/// neighbours.
ModelConfig config_of(const GgufFile& file) {
  const std::string architecture = architecture_of(file);
  const Section section(file, architecture);
  ModelConfig config;
  config.kind = ModelConfig::Kind::decoder;
  config.norm = ModelConfig::Norm::rms;
  config.gated = true;
  config.activation = Activation::silu;
  config.biases = file.find("blk.0.attn_q.bias") != nullptr ? ModelConfig::Biases::qkv
                                                            : ModelConfig::Biases::none;
  config.qk_norm = file.find("blk.0.attn_q_norm.weight") != nullptr;
  const GgufTensor* embedding = file.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.rank() != 2)
    fail_input(file.path(), ": there is no matrix token_embd.weight");
  config.vocabulary = embedding->shape[0];
  config.width = section.integer("embedding_length", sizes);
  config.layers = section.integer("block_count", layer_counts);
  config.heads = section.integer("attention.head_count", {1, 100000});
  config.kv_heads = section.integer("attention.head_count_kv", {1, 100000}, config.heads);
  config.head_dim = section.integer("attention.key_length", sizes, config.width / config.heads);
  config.ffn = section.integer("feed_forward_length", sizes);
  config.epsilon = section.number("attention.layer_norm_rms_epsilon", 1e-5, {1e-30, 1});
  config.max_tokens = section.integer("context_length", sizes, 2048);
  config.tied = file.find("output.weight") == nullptr;
  config.positions = ModelConfig::Positions::rope;
  config.rope_base = section.number("rope.freq_base", 10000);
  config.rope_layout = architecture == "llama" ? RopeLayout::interleaved : RopeLayout::half_split;
  if (section.integer("rope.dimension_count", sizes, config.dim()) != config.dim())
    fail_input(file.path(), ": ", section.key("rope.dimension_count"), " is not the ", config.dim(),
               " of a head; nothing else is computed here");
  config.rope_scaling = scaling_of(file, section, config);
  refuse_others(file, section, config);
  try {
    check_config(config);
  } catch (const std::invalid_argument& error) {
    fail_input(file.path(), ": ", error.what());
  }
  return config;
}

std::vector<NameRow> gguf_names() {
  const std::string ours = "decoder.layers.*.", theirs = "blk.*.";
  return {{"embedding", {"token_embd"}},
          {ours + "attention.norm", {theirs + "attn_norm"}},
          {ours + "attention.qkv", {theirs + "attn_q", theirs + "attn_k", theirs + "attn_v"}},
          {ours + "attention.query_norm", {theirs + "attn_q_norm"}},
          {ours + "attention.key_norm", {theirs + "attn_k_norm"}},
          {ours + "attention.out", {theirs + "attn_output"}},
          {ours + "ffn.norm", {theirs + "ffn_norm"}},
          {ours + "ffn.up", {theirs + "ffn_gate", theirs + "ffn_up"}},
          {ours + "ffn.down", {theirs + "ffn_down"}},
          {"decoder.norm", {"output_norm"}},
          {"head", {"output"}}};
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
  const ModelConfig config = config_of(file);
  StoredTensors tensors = tensors_of(file);
  tensors.finite = !options.allow_non_finite;
  const std::vector<NameRow> names = gguf_names();
  check_layers(config, names, "", tensors);
  check_memory(tensors, options.weights);
  std::set<std::string> used = {"rope_freqs.weight"};
  const auto source = [&](Parameter& parameter, const Shape& shape) {
    const std::vector<StoredPart> parts = parts_of(config, names, "", parameter.name, shape);
    std::vector<std::string> stored;
    for (const StoredPart& part : parts) stored.push_back(part.name);
    used.insert(stored.begin(), stored.end());
    if (options.weights == WeightForm::stored && shape.rank() == 2 && few_bits(file, parts)) {
      parameter.quantized = read_quantized(file, stored);
      if (parameter.quantized.shape() != shape)
        fail_input(path, ": ", stored.front(), " makes ", parameter.quantized.shape().text(),
                   ", expected ", shape.text());
      return;
    }
    take_weight(parameter, shape, tensors, parts, config, options.weights);
  };
  Pretrained made{architecture_of(file),
                  Transformer(config, source),
                  {},
                  tokens_of(file.metadata(), config, path)};
  if (file.metadata().has("tokenizer.chat_template"))
    made.chat_template = readable_template(
        std::string(file.metadata().text("tokenizer.chat_template")), path, made.notices);
  if (file.metadata().has("tokenizer.ggml.model"))
    made.tokenizer = gguf_tokenizer(file.metadata(), path);
  for (const std::string& name : tensors.names)
    if (!used.contains(name))
      made.notices.push_back(path + ": " + printable(name).text() + " is not used");
  return made;
}

PretrainedOutline outline_gguf(const std::string& path) {
  const GgufFile file(path);
  PretrainedOutline made{architecture_of(file), config_of(file), {}};
  const StoredTensors tensors = tensors_of(file);
  check_layers(made.config, gguf_names(), "", tensors);
  check_tensors(made.config, gguf_names(), "", tensors);
  for (const GgufTensor& tensor : file.tensors()) {
    PretrainedOutline::Stored& stored = made.stored[tensor.format->name];
    ++stored.tensors;
    stored.bytes += tensor.bytes;
  }
  return made;
}

}  // namespace rapt
