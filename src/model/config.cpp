#include "attention/pattern/pattern_node.h"
#include "base/check.h"
#include "model/parameters.h"
#include "rapt/model.h"

namespace rapt {
namespace {

/// A table of parameters is made for all of them before any has weights.
constexpr Index most_layers = 65536;

void check_patterns(const char* name, const std::vector<std::string>& patterns,
                    ModelConfig::SharedKeys shared) {
  check(!patterns.empty(), "model: ", name, " is empty, expected at least one pattern");
  for (const std::string& text : patterns) {
    const std::optional<Lsh> hashed = split_lsh(Pattern::parse(text)).lsh;
    check(
        !hashed || hashed->keys == Lsh::Keys::separate || shared != ModelConfig::SharedKeys::never,
        "model: ", name, " has ", text,
        ", which hashes queries and keys as one; set shared_query_key = \"hashed\", or "
        "give it separate keys");
  }
}

/// What Longformer's attention can be told.
void check_global(const ModelConfig& config) {
  const bool plain = config.kind == ModelConfig::Kind::encoder && !config.reversible &&
                     !config.qk_norm && config.softcap == 0 && config.kv_count() == config.heads &&
                     config.shared_query_key == ModelConfig::SharedKeys::never &&
                     config.positions != ModelConfig::Positions::alibi &&
                     config.positions != ModelConfig::Positions::t5 &&
                     config.positions != ModelConfig::Positions::rope;
  check(plain,
        "model: global_projections, expected an encoder without rope, alibi, t5, qk_norm, softcap, "
        "shared or fewer keys and reversible layers");
  for (const std::string& text : config.patterns)
    check(window_of(Pattern::parse(text)).has_value(), "model: patterns has ", text,
          ", expected window(n, n) with global_projections");
}

void check_rate(const char* name, double rate) {
  check(rate >= 0 && rate < 1, "model: ", name, " is ", rate, ", expected 0 to less than 1");
}

}  // namespace

namespace {

/// What attention asks of the table, said before the model is made.
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

}  // namespace

void ModelConfig::check() const {
  const auto at_least = [](Index least, const char* name, Index number) {
    rapt::check(number >= least, "model: ", name, " is ", number, ", expected at least ", least);
  };
  at_least(0, "vocabulary", vocabulary);
  at_least(1, "width", width);
  at_least(1, "layers", layers);
  at_least(kind == Kind::encoder_decoder ? 1 : 0, "encoder_layers", encoder_layers);
  for (const Index count : {layers, encoder_layers})
    rapt::check(count <= most_layers, "model: ", count, " layers, expected at most ", most_layers);
  rapt::check(kind == Kind::encoder_decoder || encoder_layers == 0, "model: encoder_layers is ",
              encoder_layers, ", expected 0 unless kind is encoder-decoder");
  at_least(1, "heads", heads);
  at_least(0, "ffn", ffn);
  at_least(0, "head_dim", head_dim);
  at_least(2, "t5_buckets", t5_buckets);
  at_least(1, "t5_max_distance", t5_max_distance);
  check_t5(*this);
  rapt::check(softcap >= 0, "model: softcap is ", softcap, ", expected 0 (none) or more");
  at_least(1, "max_tokens", max_tokens);
  rapt::check(kv_heads >= 0 && heads % kv_count() == 0, "model: kv_heads is ", kv_heads,
              ", expected a divisor of heads, which is ", heads);
  rapt::check(head_dim > 0 || width % heads == 0, "model: width ", width, " is no multiple of ",
              heads, " heads; give head_dim, or other numbers");
  rapt::check(epsilon > 0, "model: epsilon is ", epsilon, ", expected more than 0");
  rapt::check(weights != Type::f16, "model: weights are f16, expected f32 or bf16");
  check_rate("dropout", dropout);
  check_rate("attention_dropout", attention_dropout);
  check_patterns("patterns", patterns, shared_query_key);
  check_patterns("encoder_patterns", encoder_patterns, shared_query_key);
  rapt::check(positions != Positions::rope || dim() % 2 == 0, "model: head_dim is ", dim(),
              ", expected an even number under rope");
  rapt::check(shared_query_key == SharedKeys::never || kv_count() == heads,
              "model: shared_query_key with kv_heads ", kv_heads, ", expected as many as heads");
  rapt::check(
      positions != Positions::axial ||
          (axial_rows > 0 && axial_columns > 0 && 0 < axial_row_width && axial_row_width < width),
      "model: axial positions need axial_rows, axial_columns and an axial_row_width between "
      "0 and width");
  rapt::check(!reversible || (kind != Kind::encoder_decoder && norm_place == NormPlace::before),
              "model: reversible layers need one stack and norms before the layers");
  at_least(0, "token_types", token_types);
  if (global_projections) check_global(*this);
  at_least(0, "first_position", first_position);
  at_least(-1, "padding", padding);
  rapt::check(padding < 0 || (kind == Kind::encoder && positions == Positions::learned &&
                              first_position > 0 && padding < vocabulary),
              "model: padding is ", padding,
              ", expected -1, or a token of an encoder whose learned "
              "positions leave it a row (first_position > 0)");
  rapt::check(!masked_head || !reversible,
              "model: masked_head with reversible layers, expected one of them");
  rapt::check(!reversible || !tied || !head || vocabulary == 0,
              "model: reversible layers give 2 * width numbers, so the head cannot be tied to the "
              "embedding; set tied = false");
}

Tokens Tokens::one(std::vector<std::int32_t> ids) {
  const auto count = static_cast<Index>(ids.size());
  return {std::move(ids), {count}};
}

}  // namespace rapt
