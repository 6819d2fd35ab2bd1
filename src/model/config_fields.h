#pragma once

#include <string_view>
#include <utility>

#include "rapt/model.h"

namespace rapt {

// The one list of what a model's config says, which reading, writing and comparing go by.

/// The words of an enum, in the order of its values.
template <class Enum>
struct Words;
template <>
struct Words<ModelConfig::Kind> {
  static constexpr const char* list[] = {"decoder", "encoder", "encoder-decoder"};
};
template <>
struct Words<ModelConfig::Norm> {
  static constexpr const char* list[] = {"layer", "rms"};
};
template <>
struct Words<ModelConfig::NormPlace> {
  static constexpr const char* list[] = {"before", "after"};
};
template <>
struct Words<ModelConfig::Positions> {
  static constexpr const char* list[] = {"none",  "learned", "sinusoidal", "rope",
                                         "alibi", "t5",      "axial"};
};
template <>
struct Words<ModelConfig::Biases> {
  static constexpr const char* list[] = {"none", "all", "qkv", "attention", "ffn"};
};
template <>
struct Words<ModelConfig::SharedKeys> {
  static constexpr const char* list[] = {"never", "always", "hashed"};
};
template <>
struct Words<Activation> {
  static constexpr const char* list[] = {"relu", "gelu", "gelu-tanh", "silu"};
};
template <>
struct Words<Type> {
  static constexpr const char* list[] = {"f32", "bf16"};
};
template <>
struct Words<RopeLayout> {
  static constexpr const char* list[] = {"half-split", "interleaved"};
};
template <>
struct Words<Scale::Rule> {
  static constexpr const char* list[] = {"inverse-sqrt-dim", "inverse-dim", "value", "log-n"};
};

template <class Config, class Visitor>
void visit_model_fields(Config& c, Visitor& visit) {
  visit("kind", c.kind);
  visit("vocabulary", c.vocabulary);
  visit("width", c.width);
  visit("layers", c.layers);
  visit("encoder_layers", c.encoder_layers);
  visit("heads", c.heads);
  visit("kv_heads", c.kv_heads);
  visit("head_dim", c.head_dim);
  visit("ffn", c.ffn);
  visit("activation", c.activation);
  visit("gated", c.gated);
  visit("biases", c.biases);
  visit("norm", c.norm);
  visit("norm_place", c.norm_place);
  visit("epsilon", c.epsilon);
  visit("qk_norm", c.qk_norm);
  visit("embedding_norm", c.embedding_norm);
  visit("final_norm", c.final_norm);
  visit("scaled_embedding", c.scaled_embedding);
  visit("token_types", c.token_types);
  visit("head", c.head);
  visit("tied", c.tied);
  visit("masked_head", c.masked_head);
  visit("head_bias", c.head_bias);
  visit("scaled_head", c.scaled_head);
  visit("positions", c.positions);
  visit("max_tokens", c.max_tokens);
  visit("first_position", c.first_position);
  visit("padding", c.padding);
  visit("rope_base", c.rope_base);
  visit("rope_layout", c.rope_layout);
  visit("t5_buckets", c.t5_buckets);
  visit("t5_max_distance", c.t5_max_distance);
  visit("axial_rows", c.axial_rows);
  visit("axial_columns", c.axial_columns);
  visit("axial_row_width", c.axial_row_width);
  visit("patterns", c.patterns);
  visit("encoder_patterns", c.encoder_patterns);
  visit("scale", c.scale.rule);
  visit("scale_number", c.scale.number);
  visit("softcap", c.softcap);
  visit("global_projections", c.global_projections);
  visit("shared_query_key", c.shared_query_key);
  visit("reversible", c.reversible);
  visit("dropout", c.dropout);
  visit("attention_dropout", c.attention_dropout);
  visit("weights", c.weights);
  visit("recompute", c.recompute);
  visit("seed", c.seed);
}

}  // namespace rapt
