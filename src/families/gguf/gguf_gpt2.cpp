#include "families/gguf/gguf_section.h"

namespace rapt {
namespace {

/// The activation is that of GPT-2, which files do not name.
ModelConfig read_gpt2(const GgufSection& section) {
  const GgufFile& file = section.file();
  ModelConfig config;
  config.kind = ModelConfig::Kind::decoder;
  config.activation = Activation::gelu_tanh;
  config.positions = ModelConfig::Positions::learned;
  config.vocabulary = gguf_vocabulary(file);
  config.width = section.integer("embedding_length", gguf_sizes);
  config.layers = section.integer("block_count", layer_counts);
  config.heads = section.integer("attention.head_count", {1, 100000});
  config.ffn = section.integer("feed_forward_length", gguf_sizes);
  config.max_tokens = section.integer("context_length", gguf_sizes);
  config.epsilon = section.decimal("attention.layer_norm_epsilon", {1e-30, 1});
  config.tied = file.find("output.weight") == nullptr;
  section.must_be("attention.head_count_kv", static_cast<double>(config.heads));
  for (const char* length : {"attention.key_length", "attention.value_length"})
    section.must_be(length, static_cast<double>(config.dim()));
  section.must_be("expert_count", 0);
  section.must_be("logit_scale", 1);
  return config;
}

/// Queries, keys and values lie below one another as ours do, and matrices are turned as ours are.
std::vector<NameRow> gpt2_names() {
  const std::string ours = "decoder.layers.*.", theirs = "blk.*.";
  return {{"embedding", {"token_embd"}},
          {"positions", {"position_embd"}},
          {ours + "attention.norm", {theirs + "attn_norm"}},
          {ours + "attention.qkv", {theirs + "attn_qkv"}},
          {ours + "attention.out", {theirs + "attn_output"}},
          {ours + "ffn.norm", {theirs + "ffn_norm"}},
          {ours + "ffn.up", {theirs + "ffn_up"}},
          {ours + "ffn.down", {theirs + "ffn_down"}},
          {"decoder.norm", {"output_norm"}},
          {"head", {"output"}}};
}

}  // namespace

GgufArchitecture gguf_gpt2() { return {"gpt2", read_gpt2, gpt2_names, nullptr, {"blk."}}; }

}  // namespace rapt
