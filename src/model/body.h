#pragma once

#include <optional>

#include "base/check.h"
#include "model/pass.h"

namespace rapt {

struct Transformer::Body {
  explicit Body(const ModelConfig& given);

  const Rope* rope_or_null() const { return rope ? &*rope : nullptr; }
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
