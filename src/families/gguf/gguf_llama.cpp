#include "base/io/check_input.h"
#include "families/gguf/gguf_section.h"

namespace rapt::detail {
namespace {

// Llama and those built like it.

/// Frequencies may be divided by a tensor, one number for each pair.
RopeScaling scaling_of(const GgufSection& section, const ModelConfig& config) {
  const GgufFile& file = section.file();
  if (const GgufTensor* stored = file.find("rope_freqs.weight")) {
    if (stored->shape != Shape{config.dim() / 2})
      fail_input(file.path(), ": rope_freqs.weight has shape ", stored->shape, ", expected [",
                 config.dim() / 2, "]");
    const Tensor factors = file.read("rope_freqs.weight");
    LongRope made;
    made.short_factors.assign(factors.data(), factors.data() + factors.elements());
    made.long_factors = made.short_factors;
    made.trained_tokens = config.max_positions;
    made.attention_factor = 1;
    return made;
  }
  const std::string type(section.has("rope.scaling.type")
                             ? file.metadata().text(section.key("rope.scaling.type"))
                         : section.has("rope.scaling.factor") ? "linear"
                                                              : "none");
  const double factor = section.number("rope.scaling.factor", 1);
  const Index trained =
      section.integer("rope.scaling.original_context_length", size_bounds, config.max_positions);
  if (type == "none") return {};
  if (type == "linear") return LinearRope{factor};
  if (type == "yarn") return YarnRope{factor, trained};
  fail_input(file.path(), ": ", section.key("rope.scaling.type"), " is ", printable(type),
             ", expected none, linear or yarn");
}

/// Keys that would change the numbers in ways that are not computed here.
void refuse_others(const GgufSection& section, const ModelConfig& config) {
  const GgufFile& file = section.file();
  section.must_be("expert_count", 0);
  section.must_be("rope.scale_linear", 1);
  section.must_be("rope.scaling.attn_factor", 1);
  section.must_be("attention.value_length", static_cast<double>(config.dim()));
  section.must_be("logit_scale", 1);
  if (section.has("attention.causal") && !section.boolean("attention.causal"))
    fail_input(file.path(), ": ", section.key("attention.causal"),
               " is false; expected a model that writes");
  for (const GgufTensor& tensor : file.tensors())
    if (tensor.name.starts_with("blk.") && tensor.name.ends_with(".bias") &&
        tensor.name.find(".attn_q.") == std::string::npos &&
        tensor.name.find(".attn_k.") == std::string::npos &&
        tensor.name.find(".attn_v.") == std::string::npos)
      fail_input(file.path(), ": ", printable(tensor.name), " is a bias that is not added here");
}

/// Files of llama interleave rows of queries and keys: instead of moving them, RoPE rotates
/// neighbours.
ModelConfig read_llama(const GgufSection& section) {
  const GgufFile& file = section.file();
  ModelConfig config;
  config.kind = ModelConfig::Kind::decoder;
  config.norm = ModelConfig::Norm::rms;
  config.gated = true;
  config.activation = Activation::silu;
  config.biases = file.find("blk.0.attn_q.bias") != nullptr ? ModelConfig::Biases::qkv
                                                            : ModelConfig::Biases::none;
  config.qk_norm = file.find("blk.0.attn_q_norm.weight") != nullptr;
  config.vocab_size = gguf_vocabulary(file);
  config.hidden_size = section.integer("embedding_length", size_bounds);
  config.layers = section.integer("block_count", layer_counts);
  config.heads = section.integer("attention.head_count", {1, 100000});
  config.kv_heads = section.integer("attention.head_count_kv", {1, 100000}, config.heads);
  config.head_dim =
      section.integer("attention.key_length", size_bounds, config.hidden_size / config.heads);
  config.intermediate_size = section.integer("feed_forward_length", size_bounds);
  config.norm_epsilon = section.number("attention.layer_norm_rms_epsilon", 1e-5, {1e-30, 1});
  config.max_positions = section.integer("context_length", size_bounds, 2048);
  config.tied_embeddings = file.find("output.weight") == nullptr;
  config.positions = ModelConfig::Positions::rope;
  config.rope_base = section.number("rope.freq_base", 10000);
  config.rope_layout = section.name() == "llama" ? RopeLayout::interleaved : RopeLayout::half_split;
  if (section.integer("rope.dimension_count", size_bounds, config.dim()) != config.dim())
    fail_input(file.path(), ": ", section.key("rope.dimension_count"), " is not the ", config.dim(),
               " of a head; nothing else is computed here");
  config.rope_scaling = scaling_of(section, config);
  refuse_others(section, config);
  return config;
}

std::vector<NameRow> llama_names() {
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

}  // namespace

GgufArchitecture gguf_llama() { return {"llama", read_llama, llama_names}; }
GgufArchitecture gguf_qwen2() { return {"qwen2", read_llama, llama_names}; }
GgufArchitecture gguf_qwen3() { return {"qwen3", read_llama, llama_names}; }

}  // namespace rapt::detail
