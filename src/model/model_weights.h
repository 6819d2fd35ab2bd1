#pragma once

#include <optional>
#include <vector>

#include "base/indexed_vector.h"
#include "rapt/models/transformer.h"

namespace rapt::detail {

// The weights of each part, as pointers into the table of parameters. Null: the part has none.

struct NormWeights {
  Parameter* gain = nullptr;
  Parameter* shift = nullptr;
};

struct LinearWeights {
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;
};

/// One product computes queries, keys and values of self-attention; those of cross-attention take
/// two, because they read different tokens.
struct AttentionWeights {
  NormWeights norm;
  LinearWeights in;       // self: q k v, or qk v if they are shared; cross: q
  LinearWeights sources;  // cross: k v
  LinearWeights global;   // q k v of global tokens
  LinearWeights out;
  NormWeights query_norm, key_norm;
  bool shared_key = false;
};

struct LayerWeights {
  AttentionWeights self;
  std::optional<AttentionWeights> cross;
  NormWeights ffn_norm;
  LinearWeights up, down;  // up: gate, then up, if gated
  Pattern pattern;
};

struct StackWeights {
  std::string name;
  IndexedVector<LayerWeights> layers;
  NormWeights final_norm;
  Parameter* table = nullptr;  // T5's relative positions, shared by its layers
};

/// What a parameter is before it has numbers, and which ones it starts with.
struct ParameterPlan {
  Shape shape;
  double deviation = 0;  // of normal numbers; 0: all are `number`
  float number = 0;
};

/// All weights of a model.
struct ModelWeights {
  std::vector<Parameter> parameters;
  IndexedVector<ParameterPlan> plans;  // one for each parameter
  Parameter* embedding = nullptr;
  Parameter* positions = nullptr;  // learned
  Parameter* types = nullptr;
  Parameter* axial[2] = {nullptr, nullptr};
  NormWeights embedding_norm;
  std::optional<StackWeights> encoder;
  StackWeights stack;
  LinearWeights head_transform;  // of a masked head, with its norm
  NormWeights head_norm;
  LinearWeights head;  // tied: the weight is the embedding's

  /// The shape of a parameter of the table; null: no axes.
  Shape shape_of(const Parameter* parameter) const;
};

/// n of window(n, n); none of any other pattern.
std::optional<Index> window_of(const Pattern& pattern);

/// The table of a config without numbers: values are empty, shapes are in the plans.
ModelWeights plan_weights(const ModelConfig& config);
/// The same with its first numbers.
ModelWeights make_weights(const ModelConfig& config);

}  // namespace rapt::detail
