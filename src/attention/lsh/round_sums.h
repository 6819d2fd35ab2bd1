#pragma once

#include <cmath>
#include <limits>

#include "base/buffer.h"
#include "base/threads/ordered_section.h"
#include "kernels/kernels.h"
#include "rapt/tensor.h"

namespace rapt::detail {

class LshCall;

/// What one head's tokens got in the rounds so far: outputs added up, each times the weight of its
/// round, and the denominators. Memory is that of the tokens, however many rounds there are.
///
/// Rounds of a token are added in ascending order.
class RoundSums {
 public:
  /// Sums are in `out` if that is f32 and its rows are contiguous, in scratch otherwise.
  RoundSums(const LshCall& lsh, const AnyMutableView& out);

  void begin(Index item, Index head);

  void enter(Index order) { section_->enter(0, order); }
  void release() { section_->release(0); }
  void abort(const std::exception_ptr& why) { section_->abort(why); }

  /// The result of a sorted token, whose denominator is sum * 2^max: scaled(factor, numbers) gives
  /// it times the factor.
  template <class Scaled>
  void add(Index sorted_index, double max, double sum, const Scaled& scaled);

  /// Prefetches the rows that a tile of queries will be added to: adding would wait for each of
  /// them.
  void prefetch(Index query_tile) const;

  /// The natural logarithm of a token's denominator over all rounds, its output written.
  double finish(Index token, const AnyMutableView& out);

 private:
  /// A round that outweighs those before it by more than e^32 makes them smaller; others only add.
  static constexpr double most_growth = 32;

  Index token_of(Index sorted_index) const;
  void add_to(float* sums, const float* share) const;
  double note(Index sorted_index, Index token, double max, double sum);
  float* row(Index token) const { return sums_ + token * stride_; }

  const LshCall& lsh_;
  Buffer<float> scratch_;
  AnyMutableView out_;
  float* sums_ = nullptr;  // of the head at work
  Index stride_, numbers_, rounds_;
  Buffer<double> running_max_;   // by token: what weights are relative to, -inf: nothing added yet
  Buffer<double> denominators_;  // [tokens][rounds], natural logarithms
  std::unique_ptr<OrderedSection> section_;
};

template <class Scaled>
void RoundSums::add(Index sorted_index, double max, double sum, const Scaled& scaled) {
  const Index token = token_of(sorted_index);
  if (token < 0) return;
  const double lse = note(sorted_index, token, max, sum);
  if (!std::isfinite(lse)) return;  // sees nothing, or makes the row NaN in the end
  double& running_max = running_max_[token];
  float* sums = row(token);
  if (running_max == -std::numeric_limits<double>::infinity()) {
    running_max = lse;
    return scaled(1.0, sums);
  }
  if (lse - running_max > most_growth) {
    const auto shrink = static_cast<float>(std::exp(running_max - lse));
    for (Index c = 0; c < numbers_; ++c) sums[c] *= shrink;
    running_max = lse;
  }
  float share[max_dim];
  scaled(std::exp(lse - running_max), share);
  add_to(sums, share);
}

}  // namespace rapt::detail
