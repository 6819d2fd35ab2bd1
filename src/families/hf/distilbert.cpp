#include "families/family.h"

namespace rapt::detail {
namespace {

// BERT without token types and pooler, under names of its own.

ModelConfig read_distilbert(Fields& fields) {
  ModelConfig config = post_norm_encoder();
  config.mlm_head = config.head_bias = true;
  config.norm_epsilon = 1e-12;  // no key says another
  config.positions = ModelConfig::Positions::learned;
  config.vocab_size = fields.integer("vocab_size", size_bounds, 30522);
  config.hidden_size = fields.integer("dim", size_bounds, 768);
  config.layers = fields.integer("n_layers", layer_counts, 6);
  config.heads = fields.integer("n_heads", {1, 100000}, 12);
  config.intermediate_size = fields.integer("hidden_dim", size_bounds, 3072);
  config.max_positions = fields.integer("max_position_embeddings", size_bounds, 512);
  config.activation = activation_from(fields, "activation", "gelu");
  config.dropout = fields.real("dropout", {0, 0.999}, 0.1);
  config.attention_dropout = fields.real("attention_dropout", {0, 0.999}, 0.1);
  must_be(fields, "tie_weights_", true);
  must_be(fields, "tie_word_embeddings", true);
  return config;
}

Json write_distilbert(const ModelConfig& config) {
  return {{"model_type", "distilbert"},
          {"architectures", {config.head ? "DistilBertForMaskedLM" : "DistilBertModel"}},
          {"vocab_size", config.vocab_size.value_or(0)},
          {"dim", config.hidden_size},
          {"n_layers", config.layers},
          {"n_heads", config.heads},
          {"hidden_dim", config.ffn_dim()},
          {"max_position_embeddings", config.max_positions},
          {"activation", activation_name(config.activation)},
          {"dropout", config.dropout},
          {"attention_dropout", config.attention_dropout},
          {"pad_token_id", 0}};
}

std::vector<NameRow> distilbert_names(const ModelConfig&) {
  const std::string ours = "encoder.layers.*.", theirs = "@transformer.layer.*.";
  const std::string self = theirs + "attention.";
  return {{"embedding.norm", {"@embeddings.LayerNorm"}},
          {"embedding", {"@embeddings.word_embeddings"}},
          {"positions", {"@embeddings.position_embeddings"}},
          {ours + "attention.qkv", {self + "q_lin", self + "k_lin", self + "v_lin"}},
          {ours + "attention.out", {self + "out_lin"}},
          {ours + "attention.norm", {theirs + "sa_layer_norm"}},
          {ours + "ffn.up", {theirs + "ffn.lin1"}},
          {ours + "ffn.down", {theirs + "ffn.lin2"}},
          {ours + "ffn.norm", {theirs + "output_layer_norm"}},
          {"head.transform", {"vocab_transform"}},
          {"head.norm", {"vocab_layer_norm"}},
          {"head.bias", {"vocab_projector.bias"}}};
}

}  // namespace

Family distilbert_family() {
  Family made{"distilbert",     "distilbert.",
              read_distilbert,  write_distilbert,
              distilbert_names, {"embeddings.position_ids", "vocab_projector.weight"}};
  // Sinusoidal positions are what training began with; the table is stored either way.
  made.harmless = {"qa_dropout", "seq_classif_dropout", "sinusoidal_pos_embds"};
  return made;
}

}  // namespace rapt::detail
