#include "families/family.h"

namespace rapt::detail {
namespace {

// Llama and similar models: RMS pre-norm, gated SiLU, rotary positions.

Pattern window_pattern(Index window) { return causal() & rapt::window(window - 1, 0); }

/// All layers have the window, whatever else the file says.
void read_window(Fields& fields, ModelConfig& config) {
  const bool absent = !fields.has("sliding_window");
  if (absent && fields.contains("sliding_window")) return;  // null: none
  config.patterns = {window_pattern(fields.integer("sliding_window", size_bounds, 4096))};
}

/// Qwen's: layers from max_window_layers on, or those that layer_types names.
void read_windows(Fields& fields, ModelConfig& config) {
  fields.ignore({"sliding_window", "max_window_layers", "layer_types"});
  if (!fields.boolean("use_sliding_window", false) || !fields.has("sliding_window")) return;
  const Index window = fields.integer("sliding_window", size_bounds);
  const Index full = fields.integer("max_window_layers", {0, size_bounds.highest}, 28);
  std::vector<std::string> types;
  for (Index i = 0; i < config.layers; ++i)
    types.emplace_back(i < full ? "full_attention" : "sliding_attention");
  types = fields.texts("layer_types", types);
  if (std::ssize(types) != config.layers) fields.fail("layer_types", "expected one for each layer");
  config.patterns.clear();
  for (const std::string& type : types) {
    if (type != "full_attention" && type != "sliding_attention")
      fields.fail("layer_types", "expected full_attention and sliding_attention");
    config.patterns.push_back(type == "full_attention" ? causal() : window_pattern(window));
  }
}

ModelConfig read_common(Fields& fields) {
  ModelConfig config;
  config.kind = ModelConfig::Kind::decoder;
  config.norm = ModelConfig::Norm::rms;
  config.gated = true;
  config.biases = ModelConfig::Biases::none;
  config.vocab_size = fields.integer("vocab_size", size_bounds);
  config.hidden_size = fields.integer("hidden_size", size_bounds);
  config.layers = fields.integer("num_hidden_layers", layer_counts);
  config.heads = fields.integer("num_attention_heads", {1, 100000});
  config.kv_heads = fields.integer("num_key_value_heads", {1, 100000}, config.heads);
  if (fields.has("head_dim")) config.head_dim = fields.integer("head_dim", size_bounds);
  config.intermediate_size = fields.integer("intermediate_size", size_bounds);
  config.activation = activation_from(fields, "hidden_act", "silu");
  config.norm_epsilon = fields.real("rms_norm_eps", {1e-30, 1}, 1e-6);
  config.tied_embeddings = fields.boolean("tie_word_embeddings", false);
  config.max_positions = fields.integer("max_position_embeddings", size_bounds, 2048);
  config.attention_dropout = fields.real("attention_dropout", {0, 0.999}, 0);
  config.positions = ModelConfig::Positions::rope;
  read_rope(fields, config);
  must_be(fields, "is_causal", true);
  must_be(fields, "pretraining_tp", 1);
  return config;
}

/// Biases of all attention or of all there are.
void read_biases(Fields& fields, ModelConfig& config) {
  const bool attention = fields.boolean("attention_bias", false);
  const bool mlp = fields.boolean("mlp_bias", false);
  if (mlp && !attention) fields.fail("mlp_bias", "expected attention_bias with it");
  config.biases = mlp         ? ModelConfig::Biases::all
                  : attention ? ModelConfig::Biases::attention
                              : ModelConfig::Biases::none;
}

ModelConfig read_llama(Fields& fields) {
  ModelConfig config = read_common(fields);
  read_biases(fields, config);
  return config;
}

ModelConfig read_mistral(Fields& fields) {
  ModelConfig config = read_common(fields);
  read_window(fields, config);
  return config;
}

ModelConfig read_qwen2(Fields& fields) {
  ModelConfig config = read_common(fields);
  config.biases = ModelConfig::Biases::qkv;
  read_windows(fields, config);
  return config;
}

ModelConfig read_qwen3(Fields& fields) {
  ModelConfig config = read_common(fields);
  config.qk_norm = true;
  read_biases(fields, config);
  read_windows(fields, config);
  return config;
}

Json write_decoder(const ModelConfig& config, const char* type, const char* name) {
  Json made =
      common_config_json(config, type, name + std::string(config.head ? "ForCausalLM" : "Model"));
  made["num_key_value_heads"] = config.kv_head_count();
  made["head_dim"] = config.dim();
  made["rms_norm_eps"] = config.norm_epsilon;
  made["tie_word_embeddings"] = config.tied_embeddings;
  made["attention_dropout"] = config.attention_dropout;
  made["rope_parameters"] = rope_json(config);
  made["rope_theta"] = config.rope_base;
  return made;
}

/// The windows of patterns, if they are windows the family can express.
void write_windows(const ModelConfig& config, Json& to) {
  Json types = Json::array();
  Index window = 0;
  for (Index i = 0; i < config.layers; ++i) {
    const std::string pattern = to_string(config.pattern(i));
    constexpr std::string_view begin = "causal & window(";
    const bool sliding = pattern.starts_with(begin) && pattern.ends_with(", 0)");
    if (sliding) window = std::atoll(pattern.c_str() + begin.size()) + 1;
    types.push_back(sliding ? "sliding_attention" : "full_attention");
  }
  if (window == 0) return;
  to["sliding_window"] = window;
  to["use_sliding_window"] = true;
  to["max_window_layers"] = 0;
  to["layer_types"] = types;
}

Json write_llama(const ModelConfig& config) {
  Json made = write_decoder(config, "llama", "Llama");
  made["attention_bias"] =
      config.biases == ModelConfig::Biases::attention || config.biases == ModelConfig::Biases::all;
  made["mlp_bias"] = config.biases == ModelConfig::Biases::all;
  return made;
}

/// Transformers reads no layer_types here: all layers have the window.
Json write_mistral(const ModelConfig& config) {
  Json made = write_decoder(config, "mistral", "Mistral");
  write_windows(config, made);
  for (const char* key : {"layer_types", "use_sliding_window", "max_window_layers"})
    made.erase(key);
  if (!made.contains("sliding_window")) made["sliding_window"] = nullptr;
  return made;
}

Json write_qwen2(const ModelConfig& config) {
  Json made = write_decoder(config, "qwen2", "Qwen2");
  write_windows(config, made);
  return made;
}

Json write_qwen3(const ModelConfig& config) {
  Json made = write_decoder(config, "qwen3", "Qwen3");
  made["attention_bias"] = config.biases == ModelConfig::Biases::attention;
  write_windows(config, made);
  return made;
}

std::vector<NameRow> llama_names(const ModelConfig& config) {
  const std::string ours = "decoder.layers.*.", theirs = "@layers.*.";
  const TensorLayout rope = config.rope_layout == RopeLayout::interleaved
                                ? TensorLayout::half_split_rope
                                : TensorLayout::rows;
  return {{"embedding", {"@embed_tokens"}},
          {ours + "attention.norm", {theirs + "input_layernorm"}},
          {ours + "attention.qkv",
           {theirs + "self_attn.q_proj", theirs + "self_attn.k_proj", theirs + "self_attn.v_proj"},
           {rope, rope, TensorLayout::rows}},
          {ours + "attention.query_norm", {theirs + "self_attn.q_norm"}},
          {ours + "attention.key_norm", {theirs + "self_attn.k_norm"}},
          {ours + "attention.out", {theirs + "self_attn.o_proj"}},
          {ours + "ffn.norm", {theirs + "post_attention_layernorm"}},
          {ours + "ffn.up", {theirs + "mlp.gate_proj", theirs + "mlp.up_proj"}},
          {ours + "ffn.down", {theirs + "mlp.down_proj"}},
          {"decoder.norm", {"@norm"}},
          {"head", {"lm_head"}}};
}

Family like_llama(const char* type, ModelConfig (*read)(Fields&),
                  Json (*write)(const ModelConfig&)) {
  // Older files carry the frequencies of their rotations.
  Family made{type,  "model.",    read,
              write, llama_names, {"rotary_emb.", "layers.*.self_attn.rotary_emb."}};
  made.any_rope_layout = true;
  made.harmless = {"use_mrope", "rope_theta"};
  return made;
}

}  // namespace

Family llama_family() { return like_llama("llama", read_llama, write_llama); }
Family mistral_family() {
  Family made = like_llama("mistral", read_mistral, write_mistral);
  made.harmless.insert(made.harmless.end(),
                       {"layer_types", "use_sliding_window", "max_window_layers"});
  return made;
}
Family qwen2_family() { return like_llama("qwen2", read_qwen2, write_qwen2); }
Family qwen3_family() { return like_llama("qwen3", read_qwen3, write_qwen3); }

}  // namespace rapt::detail
