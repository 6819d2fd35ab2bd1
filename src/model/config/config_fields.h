#pragma once

#include "rapt/models/transformer.h"

namespace rapt::detail {

// The one list of the keys of a model's config, which reading, writing and comparing go by.

template <class Config, class Visitor>
void visit_model_fields(Config& c, Visitor& visit) {
  visit("kind", c.kind);
  visit("vocab_size", c.vocab_size);
  visit("hidden_size", c.hidden_size);
  visit("layers", c.layers);
  visit("encoder_layers", c.encoder_layers);
  visit("heads", c.heads);
  visit("kv_heads", c.kv_heads);
  visit("head_dim", c.head_dim);
  visit("intermediate_size", c.intermediate_size);
  visit("activation", c.activation);
  visit("gated", c.gated);
  visit("biases", c.biases);
  visit("norm", c.norm);
  visit("norm_position", c.norm_position);
  visit("norm_epsilon", c.norm_epsilon);
  visit("qk_norm", c.qk_norm);
  visit("embedding_norm", c.embedding_norm);
  visit("final_norm", c.final_norm);
  visit("scale_embeddings", c.scale_embeddings);
  visit("type_vocab_size", c.type_vocab_size);
  visit("head", c.head);
  visit("tied_embeddings", c.tied_embeddings);
  visit("mlm_head", c.mlm_head);
  visit("head_bias", c.head_bias);
  visit("scale_head", c.scale_head);
  visit("positions", c.positions);
  visit("max_positions", c.max_positions);
  visit("position_offset", c.position_offset);
  visit("pad_token", c.pad_token);
  visit("rope_base", c.rope_base);
  visit("rope_layout", c.rope_layout);
  visit("t5_buckets", c.t5_buckets);
  visit("t5_max_distance", c.t5_max_distance);
  visit("axial_rows", c.axial_rows);
  visit("axial_columns", c.axial_columns);
  visit("axial_row_dim", c.axial_row_dim);
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
  visit("weight_type", c.weight_type);
  visit("recompute", c.recompute);
  visit("seed", c.seed);
}

}  // namespace rapt::detail
