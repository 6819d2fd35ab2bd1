#include "families/family.h"
#include "rapt/lsh.h"

namespace rapt::detail {
namespace {

Pattern with_causal(const Pattern& pattern, bool causal) {
  return causal ? pattern & rapt::causal() : pattern;
}

Pattern local_pattern(Fields& fields, bool causal) {
  const Index chunk = fields.integer("local_attn_chunk_length", size_bounds, 64);
  const Index before = fields.integer("local_num_chunks_before", {0, 1 << 20}, 1);
  const Index after = fields.integer("local_num_chunks_after", {0, 1 << 20}, 0);
  return with_causal(chunks(chunk, before, after), causal);
}

Pattern hashed_pattern(Fields& fields, bool causal) {
  Lsh made;
  made.chunk = fields.integer("lsh_attn_chunk_length", size_bounds, 64);
  made.before = fields.integer("lsh_num_chunks_before", {0, 1 << 20}, 1);
  made.after = fields.integer("lsh_num_chunks_after", {0, 1 << 20}, 0);
  made.rounds = fields.integer("num_hashes", {1, 1 << 16}, 1);
  made.seed = static_cast<std::uint64_t>(fields.integer("hash_seed", {0, Index{1} << 62}, 0));
  if (fields.has("num_buckets"))
    made.buckets = fields.value("num_buckets").is_number()
                       ? std::vector<Index>{fields.integer("num_buckets", {2, 1 << 30})}
                       : fields.integers("num_buckets", {2, 1 << 30});
  return with_causal(lsh(made), causal);
}

void read_positions(Fields& fields, ModelConfig& config) {
  config.max_positions = fields.integer("max_position_embeddings", size_bounds, 4096);
  config.positions = ModelConfig::Positions::learned;
  if (!fields.boolean("axial_pos_embds", true)) return;
  const std::vector<Index> shape = fields.integers("axial_pos_shape", size_bounds);
  const std::vector<Index> widths = fields.integers("axial_pos_embds_dim", size_bounds);
  if (shape.size() != 2) fields.fail("axial_pos_shape", "expected two numbers");
  if (widths.size() != 2 || widths[0] + widths[1] != config.hidden_size)
    fields.fail("axial_pos_embds_dim", "expected two numbers that make hidden_size together");
  config.positions = ModelConfig::Positions::axial;
  config.axial_rows = shape[0];
  config.axial_columns = shape[1];
  config.axial_row_dim = widths[0];
}

ModelConfig read_reformer(Fields& fields) {
  ModelConfig config;
  const bool causal = fields.boolean("is_decoder", false);
  config.kind = causal ? ModelConfig::Kind::decoder : ModelConfig::Kind::encoder;
  config.reversible = true;
  config.biases = ModelConfig::Biases::ffn;
  config.shared_query_key = ModelConfig::SharedKeys::hashed;
  config.tied_embeddings = false;
  config.vocab_size = fields.integer("vocab_size", size_bounds, 320);
  config.hidden_size = fields.integer("hidden_size", size_bounds, 256);
  config.heads = fields.integer("num_attention_heads", {1, 100000}, 12);
  config.head_dim = fields.integer("attention_head_size", size_bounds, 64);
  config.intermediate_size = fields.integer("feed_forward_size", size_bounds, 512);
  config.activation = activation_from(fields, "hidden_act", "relu");
  config.norm_epsilon = fields.real("layer_norm_eps", {1e-30, 1}, 1e-12);
  config.dropout = fields.real("hidden_dropout_prob", {0, 0.999}, 0.05);
  config.attention_dropout = fields.real("local_attention_probs_dropout_prob", {0, 0.999}, 0.05);
  config.patterns.clear();
  for (const std::string& layer : fields.texts("attn_layers")) {
    if (layer != "local" && layer != "lsh") fields.fail("attn_layers", "expected local and lsh");
    config.patterns.push_back(layer == "local" ? local_pattern(fields, causal)
                                               : hashed_pattern(fields, causal));
  }
  config.layers = static_cast<Index>(config.patterns.size());
  must_be(fields, "tie_word_embeddings", false);
  read_positions(fields, config);
  return config;
}

void write_pattern(const Pattern& pattern, Json& to) {
  if (const std::optional<Lsh> hashed = lsh_part(pattern)) {
    to["attn_layers"].push_back("lsh");
    to["lsh_attn_chunk_length"] = hashed->chunk;
    to["lsh_num_chunks_before"] = hashed->before;
    to["lsh_num_chunks_after"] = hashed->after;
    to["num_hashes"] = hashed->rounds;
    to["hash_seed"] = hashed->seed;
    if (!hashed->buckets.empty())
      to["num_buckets"] =
          hashed->buckets.size() == 1 ? Json(hashed->buckets[0]) : Json(hashed->buckets);
    return;
  }
  Index chunk = 0, before = 0, after = 0;
  to["attn_layers"].push_back("local");
  if (std::sscanf(to_string(pattern).c_str(), "chunks(%ld, %ld, %ld)", &chunk, &before, &after) < 1)
    return;
  to["local_attn_chunk_length"] = chunk;
  to["local_num_chunks_before"] = before;
  to["local_num_chunks_after"] = after;
}

Json write_reformer(const ModelConfig& config) {
  const bool causal = config.kind == ModelConfig::Kind::decoder;
  const bool axial = config.positions == ModelConfig::Positions::axial;
  const char* architecture = !config.head ? "ReformerModel"
                             : causal     ? "ReformerModelWithLMHead"
                                          : "ReformerForMaskedLM";
  Json made{{"model_type", "reformer"},
            {"architectures", {architecture}},
            {"is_decoder", causal},
            {"vocab_size", config.vocab_size.value_or(0)},
            {"hidden_size", config.hidden_size},
            {"num_attention_heads", config.heads},
            {"attention_head_size", config.dim()},
            {"feed_forward_size", config.ffn_dim()},
            {"hidden_act", activation_name(config.activation)},
            {"layer_norm_eps", config.norm_epsilon},
            {"hidden_dropout_prob", config.dropout},
            {"local_attention_probs_dropout_prob", config.attention_dropout},
            {"lsh_attention_probs_dropout_prob", config.attention_dropout},
            {"tie_word_embeddings", false},
            {"max_position_embeddings", config.max_positions},
            {"axial_pos_embds", axial},
            {"attn_layers", Json::array()}};
  if (axial) {
    made["axial_pos_shape"] = {*config.axial_rows, *config.axial_columns};
    made["axial_pos_embds_dim"] = {*config.axial_row_dim,
                                   config.hidden_size - *config.axial_row_dim};
  }
  for (Index i = 0; i < config.layers; ++i) write_pattern(config.pattern(i), made);
  return made;
}

std::vector<NameRow> reformer_names(const ModelConfig& config) {
  const bool causal = config.kind == ModelConfig::Kind::decoder;
  const std::string stack = causal ? "decoder" : "encoder";
  const std::string ours = stack + ".layers.*.", theirs = "@encoder.layers.*.";
  const std::string self = theirs + "attention.self_attention.";
  return {{"embedding", {"@embeddings.word_embeddings"}},
          {"positions.weight", {"@embeddings.position_embeddings.embedding.weight"}},
          {"positions.rows.weight",
           {"@embeddings.position_embeddings.weights.0"},
           {TensorLayout::grid_rows}},
          {"positions.columns.weight",
           {"@embeddings.position_embeddings.weights.1"},
           {TensorLayout::grid_columns}},
          {ours + "attention.norm", {theirs + "attention.layer_norm"}},
          {ours + "attention.qkv", {self + "query", self + "key", self + "value"}},
          {ours + "attention.qk_v", {self + "query_key", self + "value"}},
          {ours + "attention.out", {theirs + "attention.output.dense"}},
          {ours + "ffn.norm", {theirs + "feed_forward.layer_norm"}},
          {ours + "ffn.up", {theirs + "feed_forward.dense.dense"}},
          {ours + "ffn.down", {theirs + "feed_forward.output.dense"}},
          {stack + ".norm", {"@encoder.layer_norm"}},

          {"head", {"lm_head.decoder"}}};
}

std::vector<DerivedTensor> unused_bias(const ModelConfig& config) {
  std::vector<DerivedTensor> made;
  if (config.head) made.push_back({"lm_head.bias", Tensor({config.vocab_size.value_or(0)})});
  return made;
}

}  // namespace

/// Masks that old files carry, and a bias of the head that Transformers stores and never adds.
Family reformer_family() {
  Family made{"reformer",
              "reformer.",
              read_reformer,
              write_reformer,
              reformer_names,
              {"encoder.layers.*.attention.self_attention.self_mask_value",
               "encoder.layers.*.attention.self_attention.mask_value", "lm_head.decoder.bias",
               "lm_head.bias"},
              unused_bias};
  // What a file has of layers that it does not have, of training, and what follows from the rest.
  made.harmless = {"attention_probs_dropout_prob",
                   "axial_norm_std",
                   "axial_pos_embds_dim",
                   "axial_pos_shape",
                   "chunk_size_lm_head",
                   "hash_seed",
                   "local_attn_chunk_length",
                   "local_num_chunks_after",
                   "local_num_chunks_before",
                   "lsh_attention_probs_dropout_prob",
                   "lsh_attn_chunk_length",
                   "lsh_num_chunks_after",
                   "lsh_num_chunks_before",
                   "num_attention_chunks",
                   "num_buckets",
                   "num_chunks_after",
                   "num_chunks_before",
                   "num_hashes",
                   "num_hidden_layers",
                   "sinusoidal_pos_embds",
                   "type_vocab_size"};
  return made;
}

}  // namespace rapt::detail
