#include "attention/pattern/pattern_node.h"
#include "base/check.h"
#include "model/model_weights.h"
#include "rapt/models/transformer.h"

namespace rapt {
using namespace detail;
namespace {

/// A table of parameters is made for all of them before any has weights.
constexpr Index most_layers = 65536;

void check_patterns(const char* name, const std::vector<Pattern>& patterns,
                    ModelConfig::SharedKeys shared) {
  check(!patterns.empty(), "model: ", name, " is empty, expected at least one pattern");
  for (const Pattern& pattern : patterns) {
    const std::optional<Lsh> hashed = split_lsh(pattern).lsh;
    check(
        !hashed || hashed->keys == Lsh::Keys::separate || shared != ModelConfig::SharedKeys::never,
        "model: ", name, " has ", to_string(pattern),
        ", which hashes queries and keys as one; set shared_query_key = \"hashed\", or "
        "give it separate keys");
  }
}

/// What Longformer's attention supports.
void check_global(const ModelConfig& config) {
  const bool plain = config.kind == ModelConfig::Kind::encoder && !config.reversible &&
                     !config.qk_norm && !config.softcap && config.kv_head_count() == config.heads &&
                     config.shared_query_key == ModelConfig::SharedKeys::never &&
                     config.positions != ModelConfig::Positions::alibi &&
                     config.positions != ModelConfig::Positions::t5 &&
                     config.positions != ModelConfig::Positions::rope;
  check(plain,
        "model: global_projections, expected an encoder without rope, alibi, t5, qk_norm, softcap, "
        "shared or fewer keys and reversible layers");
  for (const Pattern& pattern : config.patterns)
    check(window_of(pattern).has_value(), "model: patterns has ", to_string(pattern),
          ", expected window(n, n) with global_projections");
}

void check_rate(const char* name, double rate) {
  check(rate >= 0 && rate < 1, "model: ", name, " is ", rate, ", expected 0 to less than 1");
}

/// Attention would refuse such a table later, when the model runs.
void check_t5(const ModelConfig& config) {
  if (config.positions != ModelConfig::Positions::t5) return;
  const bool decodes = config.kind != ModelConfig::Kind::encoder;
  const Index multiple = config.kind == ModelConfig::Kind::decoder ? 2 : 4;
  check(config.t5_buckets % multiple == 0, "model: t5_buckets is ", config.t5_buckets,
        ", expected a multiple of ", multiple);
  const Index exact = config.t5_buckets / (decodes ? 2 : 4);
  check(config.t5_max_distance > exact, "model: t5_max_distance is ", config.t5_max_distance,
        ", expected more than ", exact, ", the distances that have one of the ", config.t5_buckets,
        " t5_buckets each");
}

void check_sizes(const ModelConfig& c) {
  const auto at_least = [](Index least, const char* name, std::optional<Index> number) {
    check(number.value_or(least) >= least, "model: ", name, " is ", number.value_or(0),
          ", expected at least ", least);
  };
  const bool both = c.kind == ModelConfig::Kind::encoder_decoder;
  at_least(1, "vocab_size", c.vocab_size);
  at_least(1, "hidden_size", c.hidden_size);
  at_least(1, "layers", c.layers);
  at_least(both ? 1 : 0, "encoder_layers", c.encoder_layers);
  for (const Index count : {c.layers, c.encoder_layers})
    check(count <= most_layers, "model: ", count, " layers, expected at most ", most_layers);
  check(both || c.encoder_layers == 0, "model: encoder_layers is ", c.encoder_layers,
        ", expected 0 unless kind is encoder_decoder");
  at_least(1, "heads", c.heads);
  at_least(1, "intermediate_size", c.intermediate_size);
  at_least(1, "head_dim", c.head_dim);
  at_least(1, "kv_heads", c.kv_heads);
  check(c.heads % c.kv_head_count() == 0, "model: kv_heads is ", c.kv_head_count(),
        ", expected a divisor of heads, which is ", c.heads);
  check(c.head_dim || c.hidden_size % c.heads == 0, "model: hidden_size ", c.hidden_size,
        " is no multiple of ", c.heads, " heads; give head_dim, or other numbers");
  at_least(0, "type_vocab_size", c.type_vocab_size);
}

void check_positions(const ModelConfig& c) {
  using enum ModelConfig::Positions;
  check(c.max_positions >= 1, "model: max_positions is ", c.max_positions, ", expected at least 1");
  check(c.position_offset >= 0, "model: position_offset is ", c.position_offset,
        ", expected at least 0");
  check(c.positions != rope || c.dim() % 2 == 0, "model: head_dim is ", c.dim(),
        ", expected an even number under rope");
  check(c.positions != axial || (c.axial_rows > 0 && c.axial_columns > 0 && 0 < c.axial_row_dim &&
                                 c.axial_row_dim < c.hidden_size),
        "model: axial positions need axial_rows, axial_columns and an axial_row_dim between 0 and "
        "hidden_size");
  check(c.t5_buckets >= 2, "model: t5_buckets is ", c.t5_buckets, ", expected at least 2");
  check(c.t5_max_distance >= 1, "model: t5_max_distance is ", c.t5_max_distance,
        ", expected at least 1");
  check_t5(c);
  if (!c.pad_token) return;
  const bool encodes = c.kind == ModelConfig::Kind::encoder && c.positions == learned;
  check(encodes && c.position_offset > 0 && *c.pad_token >= 0 && c.pad_token < c.vocab_size,
        "model: pad_token is ", *c.pad_token,
        ", expected a token of an encoder whose learned positions leave it a row "
        "(position_offset > 0)");
}

}  // namespace

void ModelConfig::check() const {
  using detail::check;
  check_sizes(*this);
  check_positions(*this);
  check(!softcap || *softcap > 0, "model: softcap is ", softcap.value_or(0),
        ", expected more than 0; leave it out for none");
  check(norm_epsilon > 0, "model: norm_epsilon is ", norm_epsilon, ", expected more than 0");
  check(weight_type != Type::f16, "model: weight_type is f16, expected f32 or bf16");
  check_rate("dropout", dropout);
  check_rate("attention_dropout", attention_dropout);
  check_patterns("patterns", patterns, shared_query_key);
  check_patterns("encoder_patterns", encoder_patterns, shared_query_key);
  check(shared_query_key == SharedKeys::never || kv_head_count() == heads,
        "model: shared_query_key with kv_heads ", kv_head_count(), ", expected as many as heads");
  if (global_projections) check_global(*this);
  check(!reversible || (kind != Kind::encoder_decoder && norm_position == NormPosition::pre),
        "model: reversible layers need one stack and norm_position = \"pre\"");
  check(!mlm_head || !reversible, "model: mlm_head with reversible layers, expected one of them");
  check(!reversible || !tied_embeddings || !head || !vocab_size,
        "model: reversible layers give 2 hidden_size numbers, so the head cannot be tied to the "
        "embedding; set tied_embeddings = false");
}

Tokens Tokens::one(std::vector<std::int32_t> ids) {
  const auto count = static_cast<Index>(ids.size());
  return {std::move(ids), {count}};
}

}  // namespace rapt
