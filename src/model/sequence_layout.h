#pragma once

#include <map>
#include <memory>
#include <vector>

#include "rapt/attention.h"
#include "rapt/models/transformer.h"

namespace rapt::detail {

/// Which rows of a pass belong to which sequence. Sequences of one length are items of a batch;
/// others are documents of one item, which do not see one another.
class SequenceLayout {
 public:
  explicit SequenceLayout(std::vector<Index> lengths);

  Index rows() const { return rows_; }
  Index items() const { return packed() ? 1 : static_cast<Index>(lengths_.size()); }
  bool packed() const { return packed_; }
  const std::vector<Index>& lengths() const { return lengths_; }
  /// Tokens of an item.
  Index tokens() const { return items() == 0 ? 0 : rows_ / items(); }
  /// Position of each row in its sequence; empty: rows are counted in every item.
  const std::vector<Index>& positions() const { return positions_; }

 private:
  std::vector<Index> lengths_, positions_;
  Index rows_ = 0;
  bool packed_ = false;
};

/// Neighbouring sequences that attend alike: items of one call.
struct SequenceRun {
  Index first, items;  // sequences
  Index tokens, keys;  // of each
};

/// In order. Each run attends on its own: if all rows were one call, the place of a sequence among
/// them would decide into which tiles its keys fall, and so change its last bits.
std::vector<SequenceRun> runs_of(const SequenceLayout& queries, const SequenceLayout& keys);

/// Plans of a pass: layers with one pattern share one.
class PlanBook {
 public:
  std::shared_ptr<const Plan> plan(const Pattern& pattern, Lengths lengths);

 private:
  std::map<std::string, std::shared_ptr<const Plan>> plans_;
};

}  // namespace rapt::detail
