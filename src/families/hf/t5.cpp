#include "families/family.h"

namespace rapt::detail {
namespace {

constexpr const char* encoder_class = "T5EncoderModel";

/// The layers of both stacks, or of an encoder that was saved alone.
void read_layers(Fields& fields, ModelConfig& config) {
  const Index layers = fields.integer("num_layers", layer_counts);
  const Index decoder = fields.integer("num_decoder_layers", layer_counts, layers);
  const std::vector<std::string> classes =
      fields.texts("architectures", std::vector<std::string>());
  if (!classes.empty() && classes.front() == encoder_class) {
    fields.boolean("is_encoder_decoder", false);  // some say what it was cut out of
    config.kind = ModelConfig::Kind::encoder;
    config.layers = layers;
    config.patterns = config.encoder_patterns;
    config.head = false;
    return;
  }
  must_be(fields, "is_encoder_decoder", true);
  config.kind = ModelConfig::Kind::encoder_decoder;
  config.encoder_layers = layers;
  config.layers = decoder;
}

ModelConfig read_t5(Fields& fields) {
  ModelConfig config;
  config.positions = ModelConfig::Positions::t5;
  config.norm = ModelConfig::Norm::rms;
  config.biases = ModelConfig::Biases::none;
  config.scale = Scale::none();
  config.vocab_size = fields.integer("vocab_size", size_bounds);
  config.hidden_size = fields.integer("d_model", size_bounds);
  config.head_dim = fields.integer("d_kv", size_bounds);
  config.intermediate_size = fields.integer("d_ff", size_bounds);
  config.heads = fields.integer("num_heads", {1, 100000});
  read_layers(fields, config);
  config.t5_buckets = fields.integer("relative_attention_num_buckets", {2, 1 << 20}, 32);
  config.t5_max_distance = fields.integer("relative_attention_max_distance", {1, 1 << 30}, 128);
  config.norm_epsilon = fields.real("layer_norm_epsilon", {1e-30, 1}, 1e-6);
  config.dropout = fields.real("dropout_rate", {0, 0.999}, 0.1);
  config.attention_dropout = config.dropout;
  config.tied_embeddings = fields.boolean("tie_word_embeddings", true);
  config.scale_head = fields.boolean("scale_decoder_outputs", config.tied_embeddings);
  const std::string ffn = fields.choice(
      "feed_forward_proj", {"relu", "gated-gelu", "gated-silu", "gated-relu", "gelu_new"}, "relu");
  config.gated = ffn.starts_with("gated-");
  config.activation = ffn.ends_with("relu")   ? Activation::relu
                      : ffn.ends_with("silu") ? Activation::silu
                                              : Activation::gelu_tanh;
  return config;
}

Json write_t5(const ModelConfig& config) {
  const std::string plain = config.activation == Activation::relu   ? "relu"
                            : config.activation == Activation::silu ? "silu"
                            : config.gated                          ? "gelu"
                                                                    : "gelu_new";
  const bool alone = config.kind == ModelConfig::Kind::encoder;
  const char* name = alone ? encoder_class : config.head ? "T5ForConditionalGeneration" : "T5Model";
  return {{"model_type", "t5"},
          {"architectures", {name}},
          {"is_encoder_decoder", !alone},
          {"vocab_size", config.vocab_size.value_or(0)},
          {"d_model", config.hidden_size},
          {"d_kv", config.dim()},
          {"d_ff", config.ffn_dim()},
          {"num_heads", config.heads},
          {"num_layers", alone ? config.layers : config.encoder_layers},
          {"num_decoder_layers", config.layers},
          {"relative_attention_num_buckets", config.t5_buckets},
          {"relative_attention_max_distance", config.t5_max_distance},
          {"layer_norm_epsilon", config.norm_epsilon},
          {"dropout_rate", config.dropout},
          {"tie_word_embeddings", config.tied_embeddings},
          {"scale_decoder_outputs", config.scale_head},
          {"feed_forward_proj", (config.gated ? "gated-" : "") + plain},
          {"decoder_start_token_id", 0},
          {"pad_token_id", 0}};
}

/// Parts of a block are numbered: attention, in decoders cross-attention, then the network.
void add_stack(const ModelConfig& config, const std::string& stack, std::vector<NameRow>& rows) {
  const std::string ours = stack + ".layers.*.", theirs = stack + ".block.*.layer.";
  const std::string self = theirs + "0.SelfAttention.", cross = theirs + "1.EncDecAttention.";
  const std::string ffn = theirs + (stack == "decoder" ? "2." : "1.");
  rows.push_back({stack + ".positions.weight",
                  {stack + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight"}});
  rows.push_back({ours + "attention.norm", {theirs + "0.layer_norm"}});
  rows.push_back({ours + "attention.qkv", {self + "q", self + "k", self + "v"}});
  rows.push_back({ours + "attention.out", {self + "o"}});
  rows.push_back({ours + "cross_attention.norm", {theirs + "1.layer_norm"}});
  rows.push_back({ours + "cross_attention.query", {cross + "q"}});
  rows.push_back({ours + "cross_attention.key_value", {cross + "k", cross + "v"}});
  rows.push_back({ours + "cross_attention.out", {cross + "o"}});
  rows.push_back({ours + "ffn.norm", {ffn + "layer_norm"}});
  if (config.gated)
    rows.push_back({ours + "ffn.up", {ffn + "DenseReluDense.wi_0", ffn + "DenseReluDense.wi_1"}});
  else
    rows.push_back({ours + "ffn.up", {ffn + "DenseReluDense.wi"}});
  rows.push_back({ours + "ffn.down", {ffn + "DenseReluDense.wo"}});
  rows.push_back({stack + ".norm", {stack + ".final_layer_norm"}});
}

std::vector<NameRow> t5_names(const ModelConfig& config) {
  std::vector<NameRow> rows = {{"embedding", {"shared"}}, {"head", {"lm_head"}}};
  add_stack(config, "encoder", rows);
  if (config.kind == ModelConfig::Kind::encoder_decoder) add_stack(config, "decoder", rows);
  return rows;
}

}  // namespace

/// Copies of the shared embedding, and an unused table of old files.
Family t5_family() {
  Family made{"t5",
              "",
              read_t5,
              write_t5,
              t5_names,
              {"encoder.embed_tokens.", "decoder.embed_tokens.",
               "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias."}};
  // What feed_forward_proj says again, and lengths that relative positions do not have.
  made.harmless = {"dense_act_fn", "is_gated_act", "n_positions", "feed_forward_hidden_size"};
  return made;
}

}  // namespace rapt::detail
