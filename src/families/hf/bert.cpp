#include <algorithm>

#include "families/family.h"
#include "model/model_weights.h"
#include "rapt/positions.h"

namespace rapt::detail {
namespace {

// BERT and similar models: encoders with post-norm.

ModelConfig read_common(Fields& fields) {
  ModelConfig config = post_norm_encoder();
  config.mlm_head = config.head_bias = true;
  config.vocab_size = fields.integer("vocab_size", size_bounds);
  config.hidden_size = fields.integer("hidden_size", size_bounds);
  config.layers = fields.integer("num_hidden_layers", layer_counts);
  config.heads = fields.integer("num_attention_heads", {1, 100000});
  config.intermediate_size = fields.integer("intermediate_size", size_bounds);
  config.type_vocab_size = fields.integer("type_vocab_size", {0, 100000}, 2);
  config.activation = activation_from(fields, "hidden_act", "gelu");
  config.norm_epsilon = fields.real("layer_norm_eps", {1e-30, 1}, 1e-12);
  config.dropout = fields.real("hidden_dropout_prob", {0, 0.999}, 0.1);
  config.attention_dropout = fields.real("attention_probs_dropout_prob", {0, 0.999}, 0.1);
  config.max_positions = fields.integer("max_position_embeddings", size_bounds, 512);
  must_be(fields, "is_decoder", false);
  must_be(fields, "add_cross_attention", false);
  must_be(fields, "position_embedding_type", "absolute");
  must_be(fields, "tie_word_embeddings", true);
  return config;
}

ModelConfig read_bert(Fields& fields) {
  ModelConfig config = read_common(fields);
  config.positions = ModelConfig::Positions::learned;
  return config;
}

/// Positions start after the padding token, which has none.
ModelConfig read_roberta(Fields& fields) {
  ModelConfig config = read_bert(fields);
  config.position_offset = fields.integer("pad_token_id", {0, 1000}, 1) + 1;
  config.pad_token = config.position_offset - 1;
  config.max_positions -= config.position_offset;
  return config;
}

ModelConfig read_roformer(Fields& fields) {
  ModelConfig config = read_common(fields);
  config.positions = ModelConfig::Positions::rope;
  config.rope_layout = RopeLayout::interleaved;
  must_be(fields, "embedding_size", config.hidden_size);
  must_be(fields, "rotary_value", false);
  return config;
}

ModelConfig read_longformer(Fields& fields) {
  ModelConfig config = read_roberta(fields);
  config.global_projections = true;
  config.patterns.clear();
  const std::vector<Index> windows =
      fields.has("attention_window") && fields.value("attention_window").is_number()
          ? std::vector<Index>{fields.integer("attention_window", {2, Index{1} << 31})}
          : fields.integers("attention_window", {2, Index{1} << 31}, std::vector<Index>{512});
  if (windows.size() != 1 && static_cast<Index>(windows.size()) != config.layers)
    fields.fail("attention_window", "expected a number, or one for each layer");
  for (const Index window : windows) {
    if (window % 2 != 0) fields.fail("attention_window", "expected even numbers");
    config.patterns.push_back(rapt::window(window / 2, window / 2));
  }
  return config;
}

Json write_encoder(const ModelConfig& config, const char* type, const char* name) {
  Json made =
      common_config_json(config, type, name + std::string(config.head ? "ForMaskedLM" : "Model"));
  made["type_vocab_size"] = std::max<Index>(1, config.type_vocab_size);
  made["layer_norm_eps"] = config.norm_epsilon;
  made["hidden_dropout_prob"] = config.dropout;
  made["attention_probs_dropout_prob"] = config.attention_dropout;
  made["pad_token_id"] = 0;
  return made;
}

Json write_bert(const ModelConfig& config) { return write_encoder(config, "bert", "Bert"); }

Json like_roberta(const ModelConfig& config, const char* type, const char* name) {
  Json made = write_encoder(config, type, name);
  made["pad_token_id"] = config.position_offset == 0 ? 1 : config.position_offset - 1;
  made["max_position_embeddings"] = config.max_positions + config.position_offset;
  return made;
}

Json write_roberta(const ModelConfig& config) { return like_roberta(config, "roberta", "Roberta"); }

// Multilingual and French: RoBERTa with other texts and tokenizers.
Json write_xlm_roberta(const ModelConfig& config) {
  return like_roberta(config, "xlm-roberta", "XLMRoberta");
}
Json write_camembert(const ModelConfig& config) {
  return like_roberta(config, "camembert", "Camembert");
}

Json write_roformer(const ModelConfig& config) {
  Json made = write_encoder(config, "roformer", "RoFormer");
  made["embedding_size"] = config.hidden_size;
  made["rotary_value"] = false;
  return made;
}

Json write_longformer(const ModelConfig& config) {
  Json made = like_roberta(config, "longformer", "Longformer");
  Json windows = Json::array();
  for (Index i = 0; i < config.layers; ++i) {
    if (const std::optional<Index> half = window_of(config.pattern(i)))
      windows.push_back(2 * *half);
  }
  made["attention_window"] = windows;
  return made;
}

std::vector<NameRow> base_names() {
  const std::string ours = "encoder.layers.*.", theirs = "@encoder.layer.*.";
  const std::string self = theirs + "attention.self.";
  return {{"embedding.norm", {"@embeddings.LayerNorm"}},
          {"embedding", {"@embeddings.word_embeddings"}},
          {"positions", {"@embeddings.position_embeddings"}},
          {"types", {"@embeddings.token_type_embeddings"}},
          {ours + "attention.qkv", {self + "query", self + "key", self + "value"}},
          {ours + "attention.global_qkv",
           {self + "query_global", self + "key_global", self + "value_global"}},
          {ours + "attention.out", {theirs + "attention.output.dense"}},
          {ours + "attention.norm", {theirs + "attention.output.LayerNorm"}},
          {ours + "ffn.up", {theirs + "intermediate.dense"}},
          {ours + "ffn.down", {theirs + "output.dense"}},
          {ours + "ffn.norm", {theirs + "output.LayerNorm"}}};
}

std::vector<NameRow> bert_names(const ModelConfig&) {
  std::vector<NameRow> rows = base_names();
  rows.push_back({"head.transform", {"cls.predictions.transform.dense"}});
  rows.push_back({"head.norm", {"cls.predictions.transform.LayerNorm"}});
  rows.push_back({"head.bias", {"cls.predictions.bias"}});
  return rows;
}

std::vector<NameRow> roberta_names(const ModelConfig&) {
  std::vector<NameRow> rows = base_names();
  rows.push_back({"head.transform", {"lm_head.dense"}});
  rows.push_back({"head.norm", {"lm_head.layer_norm"}});
  rows.push_back({"head.bias", {"lm_head.bias"}});
  return rows;
}

/// The token type of a model without token types: zeros, because Transformers adds a row to every
/// token.
std::vector<DerivedTensor> blank_type(const ModelConfig& config) {
  std::vector<DerivedTensor> made;
  if (config.type_vocab_size == 0)
    made.push_back({"@embeddings.token_type_embeddings.weight", Tensor({1, config.hidden_size})});
  return made;
}

/// Transformers keeps the sines and cosines of positions among the weights.
std::vector<DerivedTensor> roformer_angles(const ModelConfig& config) {
  const Sinusoidal how{.dim = config.dim(), .layout = Sinusoidal::Layout::halves};
  std::vector<DerivedTensor> made = blank_type(config);
  made.push_back({"@encoder.embed_positions.weight", sinusoidal(how, 0, config.max_positions)});
  return made;
}

/// Tables that only count, tied copies.
const std::vector<std::string> unused = {"embeddings.position_ids", "embeddings.token_type_ids",
                                         "cls.predictions.decoder.", "lm_head.decoder.",
                                         "encoder.embed_positions."};

/// The pooler comes after the rows that rapt computes.
Family finished(Family made) {
  made.other_tasks = {"pooler."};
  made.blank_type = true;
  if (made.derived == nullptr) made.derived = blank_type;
  return made;
}

}  // namespace

Family bert_family() {
  Family made{"bert", "bert.", read_bert, write_bert, bert_names, unused};
  made.harmless = {"directionality",       "pooler_fc_size",       "pooler_num_attention_heads",
                   "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type",
                   "type_vocab_size"};
  return finished(made);
}
Family roberta_family() {
  return finished({"roberta", "roberta.", read_roberta, write_roberta, roberta_names, unused});
}
Family xlm_roberta_family() {
  return finished(
      {"xlm-roberta", "roberta.", read_roberta, write_xlm_roberta, roberta_names, unused});
}
Family camembert_family() {
  return finished({"camembert", "roberta.", read_roberta, write_camembert, roberta_names, unused});
}
Family roformer_family() {
  return finished({"roformer", "roformer.", read_roformer, write_roformer, bert_names, unused,
                   roformer_angles});
}
Family longformer_family() {
  Family made{"longformer",     "longformer.", read_longformer,
              write_longformer, roberta_names, unused};
  made.harmless = {"attention_mode", "ignore_attention_mask", "onnx_export"};
  return finished(made);
}

}  // namespace rapt::detail
