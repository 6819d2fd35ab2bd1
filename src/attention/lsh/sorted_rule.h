#pragma once

#include <cstdint>

#include "attention/lsh/sorted_weights.h"
#include "base/indexed_vector.h"
#include "kernels/kernels.h"
#include "rapt/pattern.h"

namespace rapt::detail {

/// Which positions each query may see, to be looked up in sorted order.
class PositionRanges {
 public:
  PositionRanges(const Pattern& pattern, Lengths lengths);

  std::int32_t low(Index position) const { return first_[position].low; }
  std::int32_t high(Index position) const { return first_[position].high; }
  /// The ranges after the first; null if no query has more than one.
  const Ranges* more(Index position) const { return more_.empty() ? nullptr : &more_[position]; }
  /// By position: true where no query may see the key. Empty if there is none.
  const IndexedVector<bool>& padding() const { return padding_; }

 private:
  void find_padding(const IndexedVector<Index>& steps);
  struct First {
    std::int32_t low = 0, high = 0;
  };
  IndexedVector<First> first_;
  IndexedVector<Ranges> more_;
  IndexedVector<bool> padding_;
};

/// Which sorted queries of one head see which sorted keys, where a plan knows chunks only. The
/// logit of a token with itself is rewritten: it is a constant far below all others, as in
/// Reformer, and carries no gradient.
class SortedRule {
 public:
  SortedRule(const Kernels& kernels, const PositionRanges& ranges, const Lsh& lsh,
             const LshOrder& order);
  /// Positions of sorted queries and keys, padded to whole tiles with LshOrder::none.
  void load(const std::int32_t* queries, const std::int32_t* keys, Index sorted_count);
  const SortedWeights& weights() const { return weights_; }

  /// Clears the bits of keys that a query may not see; `self` are the rewritten ones, which it may.
  /// True if a bit was cleared.
  bool restrict(Index query_tile, Index key_tile, Index rows, std::uint64_t* visible,
                std::uint64_t* self) const;

  /// In place of a logit of -1e5 in units of log2, which is no f32: at that size two of them are
  /// 2^-6 apart. The two functions convert, so that -1e5 comes back as itself.
  static constexpr float self_logit = -144269.5f;
  static double natural(float log2_number);
  static double in_log2(double natural_number);
  /// Whether a denominator is that of a token alone with itself.
  static bool alone(double natural_number);

 private:
  void add_more(Index sorted_index, const std::int32_t* keys, std::uint64_t& word) const;

  const Kernels& kernels_;
  const PositionRanges& ranges_;
  bool rewrite_self_;
  SortedWeights weights_;
  IndexedVector<std::int32_t> queries_, keys_, lows_, highs_;
};

}  // namespace rapt::detail
