#pragma once

#include <cstdint>
#include <vector>

#include "attention/lsh/sorted_weights.h"
#include "kernels/kernels.h"
#include "rapt/pattern.h"

namespace rapt {

/// Which positions each query may see, for asking pair by pair in sorted order.
class PositionRanges {
 public:
  PositionRanges(const Pattern& pattern, Lengths lengths);

  std::int32_t low(Index position) const { return first_[at(position)].low; }
  std::int32_t high(Index position) const { return first_[at(position)].high; }
  /// The ranges after the first; null if no query has more than one.
  const Ranges* more(Index position) const {
    return more_.empty() ? nullptr : &more_[at(position)];
  }
  /// By position: true where no query may see the key. Empty if there is none.
  const std::vector<bool>& padding() const { return padding_; }

 private:
  void find_padding(const std::vector<Index>& steps);
  static std::size_t at(Index position) { return static_cast<std::size_t>(position); }
  struct First {
    std::int32_t low = 0, high = 0;
  };
  std::vector<First> first_;
  std::vector<Ranges> more_;
  std::vector<bool> padding_;
};

/// The pairs of one head's tokens that may meet, where tokens lie in sorted order and a plan knows
/// chunks only. A token's meeting with itself is rewritten: its logit is a constant far below all
/// others, as Reformer has it, and carries no gradient.
class SlotRule {
 public:
  /// Positions of `slots` queries and keys, padded to whole tiles with LshOrder::none.
  SlotRule(const Kernels& kernels, const PositionRanges& ranges, const Lsh& lsh,
           const LshOrder& order);
  void take(const std::int32_t* queries, const std::int32_t* keys, Index slots);
  const SlotWeights& weights() const { return weights_; }

  /// Clears the bits of pairs that may not meet; `self` are the rewritten ones, which may. True if
  /// a bit was cleared.
  bool restrict(Index query_tile, Index key_tile, Index rows, std::uint64_t* visible,
                std::uint64_t* self) const;

  /// Stands for a logit of -1e5 in units of log2, which is no f32: far down there two of them are
  /// 2^-6 apart. The two functions translate, so that -1e5 comes back as itself.
  static constexpr float self_logit = -144269.5f;
  static double natural(float log2_number);
  static double in_log2(double natural_number);
  /// Whether a denominator is that of a token alone with itself.
  static bool alone(double natural_number);

 private:
  void add_more(Index slot, const std::int32_t* keys, std::uint64_t& word) const;

  const Kernels& kernels_;
  const PositionRanges& ranges_;
  bool rewrite_self_;
  SlotWeights weights_;
  std::vector<std::int32_t> queries_, keys_, lows_, highs_;
};

}  // namespace rapt
