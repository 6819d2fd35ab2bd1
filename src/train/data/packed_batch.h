#pragma once

#include "rapt/models/transformer.h"
#include "train/data/batch.h"

namespace rapt::detail {

/// A batch as a model takes it: contiguous sequences without padding.
struct PackedBatch {
  Tokens tokens;
  std::vector<std::int32_t> targets;  // of each token
  Tokens sources;                     // empty: there is no encoder
  std::vector<std::size_t> places;    // of each token in the batch

  /// [items, tokens] of the batch from one number for each token; -1 where there is none.
  std::vector<std::int32_t> spread(std::span<const std::int32_t> numbers, const Batch& batch) const;
};

/// Leaves out what only fills up.
PackedBatch packed(const Batch& batch);

}  // namespace rapt::detail
