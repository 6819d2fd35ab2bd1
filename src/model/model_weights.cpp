#include "model/model_weights.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "attention/pattern/pattern_node.h"
#include "base/check.h"
#include "base/indexed_vector.h"
#include "base/memory_use.h"
#include "model/initial_weights.h"

namespace rapt::detail {
namespace {

/// Adds parameters to the table, whose memory is reserved from the start: pointers into it stay
/// valid.
///
/// Weights are drawn so that numbers keep their size from layer to layer: a linear layer over `in`
/// numbers of variance 1 has deviation 1/sqrt(in), so queries and keys have variance 1, their
/// product has variance dim, and the scale 1/sqrt(dim) brings scores back to variance 1. Layers
/// that add to the residual stream are drawn smaller by the root of the number of additions, so
/// that the stream does not grow with the depth.
class Builder {
 public:
  Builder(const ModelConfig& config, ModelWeights& weights) : config_(config), weights_(weights) {
    const Index layers = config.layers + config.encoder_layers;
    weights_.parameters.reserve(to_size(32 + 32 * layers));
  }

  Parameter* matrix(const std::string& name, Index rows, Index columns, double deviation) {
    return add(name, {.shape = {rows, columns}, .deviation = deviation}, true);
  }
  Parameter* vector(const std::string& name, Index size, float number) {
    return add(name, {.shape = {size}, .number = number}, false);
  }

  enum class Site { qkv, out, ffn, head };
  bool has_bias(Site site) const {
    switch (config_.biases) {
      case ModelConfig::Biases::none:
        return site == Site::head;
      case ModelConfig::Biases::qkv:
        return site == Site::qkv || site == Site::head;
      case ModelConfig::Biases::attention:
        return site != Site::ffn;
      case ModelConfig::Biases::ffn:
        return site == Site::ffn || site == Site::head;
      default:
        return true;
    }
  }
  LinearWeights linear(const std::string& name, Site site, Index in, Index out, double shrink = 1) {
    return {matrix(name + ".weight", out, in, shrink / std::sqrt(static_cast<double>(in))),
            has_bias(site) ? vector(name + ".bias", out, 0) : nullptr};
  }
  NormWeights norm(const std::string& name, Index size) {
    const bool shifts = config_.norm == ModelConfig::Norm::layer;
    return {vector(name + ".weight", size, 1), shifts ? vector(name + ".bias", size, 0) : nullptr};
  }
  NormWeights head_norm(const std::string& name) {
    return {config_.qk_norm ? vector(name + ".weight", config_.dim(), 1) : nullptr, nullptr};
  }

  AttentionWeights self_attention(const std::string& name, const Pattern& pattern, double shrink) {
    const Index kv = config_.kv_head_count() * config_.dim(), q = config_.heads * config_.dim();
    AttentionWeights made;
    made.shared_key = config_.shared_query_key == ModelConfig::SharedKeys::always ||
                      (config_.shared_query_key == ModelConfig::SharedKeys::hashed &&
                       node_of(pattern)->has_lsh());
    made.norm = norm(name + ".norm", config_.hidden_size);
    made.in = made.shared_key ? linear(name + ".qk_v", Site::qkv, config_.hidden_size, q + kv)
                              : linear(name + ".qkv", Site::qkv, config_.hidden_size, q + 2 * kv);
    if (config_.global_projections)
      made.global = linear(name + ".global_qkv", Site::qkv, config_.hidden_size, q + 2 * kv);
    made.query_norm = head_norm(name + ".query_norm");
    if (!made.shared_key) made.key_norm = head_norm(name + ".key_norm");
    made.out = linear(name + ".out", Site::out, q, config_.hidden_size, shrink);
    return made;
  }
  AttentionWeights cross_attention(const std::string& name, double shrink) {
    const Index kv = config_.kv_head_count() * config_.dim(), q = config_.heads * config_.dim();
    AttentionWeights made;
    made.norm = norm(name + ".norm", config_.hidden_size);
    made.in = linear(name + ".query", Site::qkv, config_.hidden_size, q);
    made.sources = linear(name + ".key_value", Site::qkv, config_.hidden_size, 2 * kv);
    made.query_norm = head_norm(name + ".query_norm");
    made.key_norm = head_norm(name + ".key_norm");
    made.out = linear(name + ".out", Site::out, q, config_.hidden_size, shrink);
    return made;
  }

  LayerWeights layer(const std::string& name, const Pattern& pattern, bool cross, double shrink) {
    LayerWeights made;
    made.pattern = pattern;
    made.self = self_attention(name + ".attention", made.pattern, shrink);
    if (cross) made.cross = cross_attention(name + ".cross_attention", shrink);
    made.ffn_norm = norm(name + ".ffn.norm", config_.hidden_size);
    made.up = linear(name + ".ffn.up", Site::ffn, config_.hidden_size,
                     (config_.gated ? 2 : 1) * config_.ffn_dim());
    made.down =
        linear(name + ".ffn.down", Site::ffn, config_.ffn_dim(), config_.hidden_size, shrink);
    return made;
  }

  StackWeights stack(const std::string& name, Index layers, const std::vector<Pattern>& patterns,
                     bool cross) {
    StackWeights made;
    made.name = name;
    if (config_.positions == ModelConfig::Positions::t5)
      made.table = matrix(name + ".positions.weight", config_.t5_buckets, config_.heads, 0.1);
    const double additions = static_cast<double>((cross ? 3 : 2) * std::max<Index>(1, layers));
    for (Index i = 0; i < layers; ++i)
      made.layers.push_back(layer(name + ".layers." + std::to_string(i),
                                  element(patterns, i % std::ssize(patterns)), cross,
                                  1 / std::sqrt(additions)));
    if (config_.final_norm && config_.norm_position == ModelConfig::NormPosition::pre)
      made.final_norm = norm(name + ".norm", stream_width());
    return made;
  }

  Index stream_width() const { return (config_.reversible ? 2 : 1) * config_.hidden_size; }

 private:
  Parameter* add(const std::string& name, const ParameterPlan& plan, bool decays) {
    auto& table = weights_.parameters;
    check(table.size() < table.capacity(), "parameters: more than were counted");
    table.push_back({.name = name, .value = {}, .gradient = {}, .decays = decays});
    weights_.plans.push_back(plan);
    return &table.back();
  }

  const ModelConfig& config_;
  ModelWeights& weights_;
};

void add_embedding(const ModelConfig& config, Builder& builder, ModelWeights& weights) {
  const double deviation = 1 / std::sqrt(static_cast<double>(config.hidden_size));
  if (config.vocab_size)
    weights.embedding =
        builder.matrix("embedding.weight", *config.vocab_size, config.hidden_size, deviation);
  if (config.positions == ModelConfig::Positions::learned)
    weights.positions =
        builder.matrix("positions.weight", config.position_offset + config.max_positions,
                       config.hidden_size, deviation);
  if (config.type_vocab_size > 0)
    weights.types =
        builder.matrix("types.weight", config.type_vocab_size, config.hidden_size, deviation);
  if (config.positions == ModelConfig::Positions::axial) {
    weights.axial[0] = builder.matrix("positions.rows.weight", *config.axial_rows,
                                      *config.axial_row_dim, deviation);
    weights.axial[1] = builder.matrix("positions.columns.weight", *config.axial_columns,
                                      config.hidden_size - *config.axial_row_dim, deviation);
  }
  if (config.embedding_norm)
    weights.embedding_norm = builder.norm("embedding.norm", config.hidden_size);
}

void add_head(const ModelConfig& config, Builder& builder, ModelWeights& weights) {
  const Index width = builder.stream_width();
  if (config.mlm_head) {
    weights.head_transform = builder.linear("head.transform", Builder::Site::head,
                                            config.hidden_size, config.hidden_size);
    weights.head_norm = builder.norm("head.norm", config.hidden_size);
  }
  weights.head.weight = config.tied_embeddings
                            ? weights.embedding
                            : builder.matrix("head.weight", *config.vocab_size, width,
                                             1 / std::sqrt(static_cast<double>(width)));
  if (config.head_bias) weights.head.bias = builder.vector("head.bias", *config.vocab_size, 0);
}

}  // namespace

std::optional<Index> window_of(const Pattern& pattern) {
  Index left = 0, right = 0;
  char end = 0;
  const std::string text = to_string(pattern);
  if (std::sscanf(text.c_str(), "window(%td, %td%c", &left, &right, &end) != 3 || end != ')' ||
      left != right || pattern != window(left, right))
    return {};
  return left;
}

Shape ModelWeights::shape_of(const Parameter* parameter) const {
  if (parameter == nullptr) return {};
  return plans[parameter - parameters.data()].shape;
}

ModelWeights plan_weights(const ModelConfig& config) {
  config.check();
  ModelWeights weights;
  Builder builder(config, weights);
  add_embedding(config, builder, weights);
  const bool both = config.kind == ModelConfig::Kind::encoder_decoder;
  if (both)
    weights.encoder =
        builder.stack("encoder", config.encoder_layers, config.encoder_patterns, false);
  const bool encoder = config.kind == ModelConfig::Kind::encoder;
  weights.stack =
      builder.stack(encoder ? "encoder" : "decoder", config.layers, config.patterns, both);
  if (config.vocab_size && config.head) add_head(config, builder, weights);
  return weights;
}

ModelWeights make_weights(const ModelConfig& config) {
  ModelWeights weights = plan_weights(config);
  double bytes = 0;
  for (const ParameterPlan& plan : weights.plans)
    bytes += static_cast<double>(plan.shape.elements()) * sizeof(float);
  const Index most = machine_memory();
  check(most == 0 || bytes <= static_cast<double>(most), "model: its weights take ", bytes * 1e-9,
        " GB, this machine has ", static_cast<double>(most) * 1e-9, " GB of memory");
  for (std::size_t i = 0; i < weights.parameters.size(); ++i) {
    const ParameterPlan& plan = weights.plans[i];
    Parameter& parameter = weights.parameters[i];
    parameter.value = Tensor(plan.shape);
    if (plan.deviation > 0)
      draw_normal(parameter, plan.deviation, config.seed);
    else
      std::fill_n(parameter.value.data(), parameter.value.elements(), plan.number);
  }
  return weights;
}

}  // namespace rapt::detail
