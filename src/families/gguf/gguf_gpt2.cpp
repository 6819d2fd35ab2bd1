#include "families/gguf/gguf_section.h"

namespace rapt::detail {
namespace {

/// Files do not name the activation, which is that of GPT-2.
ModelConfig read_gpt2(const GgufSection& section) {
  const GgufFile& file = section.file();
  ModelConfig config;
  config.kind = ModelConfig::Kind::decoder;
  config.activation = Activation::gelu_tanh;
  read_gguf_sizes(section, config);
  config.tied_embeddings = file.find("output.weight") == nullptr;
  section.must_be("expert_count", 0);
  section.must_be("logit_scale", 1);
  return config;
}

/// Queries, keys and values are stacked as ours are, and matrices are not transposed.
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

}  // namespace rapt::detail
