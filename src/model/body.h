#pragma once

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "model/pass.h"

namespace rapt {

struct Transformer::Body {
  explicit Body(const ModelConfig& given);

  /// For sequences of these lengths; cached keys are turned for good, so caches take none whose
  /// angles depend on the length.
  std::optional<Rope> rope_for(const std::vector<Index>& lengths) const {
    if (!rope || lengths.empty()) return rope;
    return rope->for_length(*std::max_element(lengths.begin(), lengths.end()));
  }
  Parameter& head() {
    Parameter* head = config.tied ? weights.embedding : weights.head.weight;
    check(head != nullptr, "model: there is no vocabulary, so there is no head");
    return *head;
  }

  ModelConfig config;
  ModelWeights weights;
  std::optional<Rope> rope;
};

}  // namespace rapt
