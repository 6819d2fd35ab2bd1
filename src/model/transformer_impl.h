#pragma once

#include <algorithm>
#include <optional>

#include "base/access.h"
#include "base/check.h"
#include "model/pass.h"

namespace rapt {
using namespace detail;

struct Transformer::Impl {
  Impl(const ModelConfig& given, ModelWeights made);

  /// For sequences of these lengths: one, or one for each if they differ.
  std::vector<Rope> ropes_for(const std::vector<Index>& lengths) const {
    std::vector<Rope> ropes;
    if (!rope) return ropes;
    if (!angles_follow_length(config)) return {*rope};
    for (const Index length : lengths) ropes.push_back(rope->for_length(length));
    if (std::ranges::count(lengths, lengths.front()) == std::ssize(lengths)) ropes.resize(1, *rope);
    return ropes;
  }
  Parameter& head() {
    check(weights.head.weight != nullptr, "model: it has no head, expected one that makes logits");
    return *weights.head.weight;
  }

  /// The input of the head, made of the last layer's rows.
  Variable head_rows(Tape& tape, Variable x);
  /// The output of new tokens of sequences of a cache, rotated by their ropes.
  Tensor extended(const Tokens& tokens, const CacheUse& use, std::vector<Rope> ropes,
                  const Context& context);
  /// The same for one sequence, whose angles depend on its length.
  Tensor extended_text(std::span<const std::int32_t> ids, ModelCache& cache, Index sequence,
                       const Context& context);

  ModelConfig config;
  ModelWeights weights;
  std::optional<Rope> rope;
};

}  // namespace rapt
