#pragma once

#include <cmath>
#include <limits>

#include "base/buffer.h"
#include "base/threads/ordered_section.h"
#include "kernels/kernels.h"
#include "rapt/tensor.h"

namespace rapt {

class LshCall;

/// What one head's tokens got in the rounds so far: outputs added up, each times the weight of its
/// round, and the denominators. Memory is that of the tokens, however many rounds there are.
///
/// Rounds of a token are added in ascending order: tasks add in turns.
class RoundSums {
 public:
  /// Sums lie in `out` if that is f32 and its rows lie close, in room of their own otherwise.
  RoundSums(const LshCall& lsh, const AnyMutableView& out);

  void take(Index item, Index head);

  void enter(Index turn) { turns_->enter(0, turn); }
  void leave() { turns_->leave(0); }
  void give_up(const std::exception_ptr& why) { turns_->give_up(why); }

  /// The result of the token in a slot, whose denominator is sum * 2^max: scaled(factor, numbers)
  /// gives it times the factor.
  template <class Scaled>
  void add(Index slot, double max, double sum, const Scaled& scaled);

  /// Asks for the rows that a tile of slots will be added to: adding would wait for each of them.
  void expect(Index query_tile) const;

  /// The natural logarithm of a token's denominator over all rounds, its output written.
  double finish(Index token, const AnyMutableView& out);

 private:
  /// A round that outweighs those before it by more than e^32 makes them smaller; others only add.
  static constexpr double most_growth = 32;

  Index token_of(Index slot) const;
  void add_to(float* sums, const float* share) const;
  double note(Index slot, Index token, double max, double sum);
  float* row(Index token) const { return sums_ + token * stride_; }

  const LshCall& lsh_;
  Buffer<float> room_;
  AnyMutableView out_;
  float* sums_ = nullptr;  // of the head at work
  Index stride_, numbers_, rounds_;
  Buffer<double> references_;  // by token: what weights are measured from, -inf: nothing added yet
  Buffer<double> denominators_;  // [tokens][rounds], natural logarithms
  std::unique_ptr<Turns> turns_;
};

template <class Scaled>
void RoundSums::add(Index slot, double max, double sum, const Scaled& scaled) {
  const Index token = token_of(slot);
  if (token < 0) return;
  const double lse = note(slot, token, max, sum);
  if (!std::isfinite(lse)) return;  // sees nothing, or makes the row NaN in the end
  double& reference = references_[token];
  float* sums = row(token);
  if (reference == -std::numeric_limits<double>::infinity()) {
    reference = lse;
    return scaled(1.0, sums);
  }
  if (lse - reference > most_growth) {
    const auto shrink = static_cast<float>(std::exp(reference - lse));
    for (Index c = 0; c < numbers_; ++c) sums[c] *= shrink;
    reference = lse;
  }
  float share[max_dim];
  scaled(std::exp(lse - reference), share);
  add_to(sums, share);
}

}  // namespace rapt
