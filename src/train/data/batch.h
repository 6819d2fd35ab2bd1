#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rapt/tensor.h"

namespace rapt::detail {

/// Tokens of one step, row-major [items, tokens]. A target below 0 does not count.
struct Batch {
  Index items = 0;
  Index tokens = 0;
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> targets;
  /// Lengths of the packed documents over all items, in order, each inside one item. Empty: every
  /// item is one document.
  std::vector<Index> documents = {};

  /// What an encoder reads, [items, source_tokens]; 0 where there is no encoder.
  Index source_tokens = 0;
  std::vector<std::int32_t> sources = {};
  std::vector<Index> source_lengths = {};  // [items], tokens that are no filling

  /// Targets that count.
  Index counted() const;
  bool operator==(const Batch&) const = default;
};

/// How many predictions were right. The inputs hold the right answers up to each place, so an item
/// is exact just when greedy generation would have given the whole of it.
struct Accuracy {
  Index targets = 0;  // that count
  Index right = 0;
  Index items = 0;  // with a target that counts
  Index exact = 0;  // all targets right

  /// predictions [items, tokens]: the likeliest token at each place. Throws std::invalid_argument
  /// if their number is another.
  void add(const Batch& batch, std::span<const std::int32_t> predictions);
  /// Fractions; 0 if nothing counted.
  double of_targets() const;
  double of_items() const;
};

}  // namespace rapt::detail
