#pragma once

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "model/pass.h"

namespace rapt {

struct Transformer::Body {
  Body(const ModelConfig& given, ModelWeights made);

  /// For sequences of these lengths; cached keys are turned for good, so caches take none whose
  /// angles depend on the length.
  std::optional<Rope> rope_for(const std::vector<Index>& lengths) const {
    if (!rope || lengths.empty()) return rope;
    return rope->for_length(*std::max_element(lengths.begin(), lengths.end()));
  }
  Parameter& head() {
    check(weights.head.weight != nullptr, "model: it has no head, expected one that makes logits");
    return *weights.head.weight;
  }

  /// What the head reads of the last layer's rows.
  Variable head_rows(Tape& tape, Variable x);

  ModelConfig config;
  ModelWeights weights;
  std::optional<Rope> rope;
};

}  // namespace rapt
