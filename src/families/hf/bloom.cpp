#include "families/family.h"

namespace rapt::detail {
namespace {

ModelConfig read_bloom(Fields& fields) {
  ModelConfig config;
  config.kind = ModelConfig::Kind::decoder;
  config.positions = ModelConfig::Positions::alibi;
  config.embedding_norm = true;
  config.activation = Activation::gelu_tanh;
  config.vocab_size = fields.integer("vocab_size", size_bounds, 250880);
  config.hidden_size = fields.has("n_embed") ? fields.integer("n_embed", size_bounds)
                                             : fields.integer("hidden_size", size_bounds, 64);
  config.layers = fields.has("num_hidden_layers")
                      ? fields.integer("num_hidden_layers", layer_counts)
                      : fields.integer("n_layer", layer_counts, 2);
  config.heads = fields.has("num_attention_heads")
                     ? fields.integer("num_attention_heads", {1, 100000})
                     : fields.integer("n_head", {1, 100000}, 8);
  config.intermediate_size = 4 * config.hidden_size;
  config.norm_epsilon = fields.real("layer_norm_epsilon", {1e-30, 1}, 1e-5);
  config.dropout = fields.real("hidden_dropout", {0, 0.999}, 0);
  config.attention_dropout = fields.real("attention_dropout", {0, 0.999}, 0);
  config.tied_embeddings = fields.boolean("tie_word_embeddings", true);
  must_be(fields, "apply_residual_connection_post_layernorm", false);
  return config;
}

Json write_bloom(const ModelConfig& config) {
  return {{"model_type", "bloom"},
          {"architectures", {config.head ? "BloomForCausalLM" : "BloomModel"}},
          {"vocab_size", config.vocab_size.value_or(0)},
          {"hidden_size", config.hidden_size},
          {"n_layer", config.layers},
          {"n_head", config.heads},
          {"layer_norm_epsilon", config.norm_epsilon},
          {"hidden_dropout", config.dropout},
          {"attention_dropout", config.attention_dropout},
          {"tie_word_embeddings", config.tied_embeddings}};
}

std::vector<NameRow> bloom_names(const ModelConfig&) {
  const std::string ours = "decoder.layers.*.", theirs = "@h.*.";
  return {{"embedding.norm", {"@word_embeddings_layernorm"}},
          {"embedding", {"@word_embeddings"}},
          {ours + "attention.norm", {theirs + "input_layernorm"}},
          {ours + "attention.qkv",
           {theirs + "self_attention.query_key_value"},
           {TensorLayout::by_head}},
          {ours + "attention.out", {theirs + "self_attention.dense"}},
          {ours + "ffn.norm", {theirs + "post_attention_layernorm"}},
          {ours + "ffn.up", {theirs + "mlp.dense_h_to_4h"}},
          {ours + "ffn.down", {theirs + "mlp.dense_4h_to_h"}},
          {"decoder.norm", {"@ln_f"}},
          {"head", {"lm_head"}}};
}

}  // namespace

Family bloom_family() {
  Family made{"bloom", "transformer.", read_bloom, write_bloom, bloom_names};
  // How training was distributed; ALiBi has no maximum length.
  made.harmless = {"attention_softmax_in_fp32",
                   "bias_dropout_fusion",
                   "masked_softmax_fusion",
                   "n_inner",
                   "offset_alibi",
                   "pretraining_tp",
                   "seq_length",
                   "skip_bias_add",
                   "skip_bias_add_qkv",
                   "slow_but_exact",
                   "hidden_size",
                   "n_layer",
                   "n_head",
                   "unk_token_id"};
  return made;
}

}  // namespace rapt::detail
