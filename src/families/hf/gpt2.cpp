#include "families/family.h"

namespace rapt::detail {
namespace {

ModelConfig read_gpt2(Fields& fields) {
  ModelConfig config;
  config.kind = ModelConfig::Kind::decoder;
  config.positions = ModelConfig::Positions::learned;
  config.vocab_size = fields.integer("vocab_size", size_bounds, 50257);
  config.hidden_size = fields.integer("n_embd", size_bounds, 768);
  config.layers = fields.integer("n_layer", layer_counts, 12);
  config.heads = fields.integer("n_head", {1, 100000}, 12);
  config.intermediate_size = fields.integer("n_inner", size_bounds, 4 * config.hidden_size);
  config.max_positions = fields.integer("n_positions", size_bounds, 1024);
  config.activation = activation_from(fields, "activation_function", "gelu_new");
  config.norm_epsilon = fields.real("layer_norm_epsilon", {1e-30, 1}, 1e-5);
  config.tied_embeddings = fields.boolean("tie_word_embeddings", true);
  config.dropout = fields.real("resid_pdrop", {0, 0.999}, 0.1);
  config.attention_dropout = fields.real("attn_pdrop", {0, 0.999}, 0.1);
  must_be(fields, "scale_attn_weights", true);
  must_be(fields, "scale_attn_by_inverse_layer_idx", false);
  must_be(fields, "add_cross_attention", false);
  return config;
}

Json write_gpt2(const ModelConfig& config) {
  return {{"model_type", "gpt2"},
          {"architectures", {config.head ? "GPT2LMHeadModel" : "GPT2Model"}},
          {"vocab_size", config.vocab_size.value_or(0)},
          {"n_embd", config.hidden_size},
          {"n_layer", config.layers},
          {"n_head", config.heads},
          {"n_inner", config.ffn_dim()},
          {"n_positions", config.max_positions},
          {"activation_function", activation_name(config.activation)},
          {"layer_norm_epsilon", config.norm_epsilon},
          {"tie_word_embeddings", config.tied_embeddings},
          {"resid_pdrop", config.dropout},
          {"embd_pdrop", config.dropout},
          {"attn_pdrop", config.attention_dropout}};
}

/// Matrices are transposed here.
std::vector<NameRow> gpt2_names(const ModelConfig&) {
  std::vector<NameRow> rows = {{"embedding", {"@wte"}},
                               {"positions", {"@wpe"}},
                               {"decoder.layers.*.attention.norm", {"@h.*.ln_1"}},
                               {"decoder.layers.*.ffn.norm", {"@h.*.ln_2"}},
                               {"decoder.norm", {"@ln_f"}},
                               {"head", {"lm_head"}}};
  const std::pair<const char*, const char*> matrices[] = {{"attention.qkv", "attn.c_attn"},
                                                          {"attention.out", "attn.c_proj"},
                                                          {"ffn.up", "mlp.c_fc"},
                                                          {"ffn.down", "mlp.c_proj"}};
  for (const auto& [ours, theirs] : matrices) {
    const std::string here = std::string("decoder.layers.*.") + ours;
    const std::string there = std::string("@h.*.") + theirs;
    rows.push_back({here + ".weight", {there + ".weight"}, {TensorLayout::transposed}});
    rows.push_back({here + ".bias", {there + ".bias"}});
  }
  return rows;
}

}  // namespace

/// Older files carry the causal mask of every layer.
Family gpt2_family() {
  Family made{"gpt2",     "transformer.", read_gpt2,
              write_gpt2, gpt2_names,     {"h.*.attn.bias", "h.*.attn.masked_bias"}};
  // Dropout of the embedding is that of the rest here; summaries are a head for other tasks.
  made.harmless = {"embd_pdrop",
                   "n_ctx",
                   "reorder_and_upcast_attn",
                   "summary_activation",
                   "summary_first_dropout",
                   "summary_proj_to_labels",
                   "summary_type",
                   "summary_use_proj"};
  return made;
}

}  // namespace rapt::detail
