#include "attention/lsh/lsh_rounds.h"

#include <algorithm>

#include "attention/lsh/lsh_call.h"
#include "attention/lsh/lsh_join.h"

namespace rapt {

RoundSums::RoundSums(const LshCall& lsh, const AnyMutableView& out)
    : lsh_(lsh),
      room_(adds_in_place(out) ? 0 : checked_product({lsh.tokens(), lsh.value_dim()})),
      out_(out),
      stride_(adds_in_place(out) ? out.stride(2) : lsh.value_dim()),
      numbers_(lsh.value_dim()),
      rounds_(lsh.order().rounds()),
      references_(lsh.tokens()),
      denominators_(checked_product({lsh.tokens(), lsh.order().rounds()})) {}

void RoundSums::take(Index item, Index head) {
  sums_ = adds_in_place(out_) ? static_cast<float*>(out_.row(item, head, 0)) : room_.data();
  std::fill(references_.begin(), references_.end(), -std::numeric_limits<double>::infinity());
  turns_ = std::make_unique<Turns>(1);
}

Index RoundSums::token_of(Index slot) const { return lsh_.call().query_order->rows[slot]; }

void RoundSums::add_to(float* sums, const float* share) const {
  lsh_.kernels().network->add(sums, share, numbers_);
}

void RoundSums::expect(Index query_tile) const {
  const Index end = std::min(lsh_.slots(), (query_tile + 1) * tile);
  for (Index slot = query_tile * tile; slot < end; ++slot) {
    const Index token = token_of(slot);
    if (token < 0) continue;
    expect_to_write(row(token), numbers_);
    expect_to_write(&references_[token], 1);
    expect_to_write(&denominators_[token * rounds_], 1);
  }
}

double RoundSums::note(Index slot, Index token, double max, double sum) {
  const double lse = SlotRule::natural(static_cast<float>(max)) + std::log(sum);
  denominators_[token * rounds_ + slot / lsh_.order().slots_per_round()] = lse;
  return lse;
}

double RoundSums::finish(Index token, const AnyMutableView& out) {
  const double lse =
      joint_lse(denominators_.data() + token * rounds_, rounds_, lsh_.rounds_denominators());
  float* sums = row(token);
  if (std::isfinite(lse)) {
    const auto factor = static_cast<float>(std::exp(references_[token] - lse));
    lsh_.kernels().network->scale(sums, factor, numbers_, sums);
  } else {
    // A denominator of -inf is a token that sees nothing; NaN and +inf make the row NaN.
    const bool nothing = lse == -std::numeric_limits<double>::infinity();
    std::fill(sums, sums + numbers_, nothing ? 0.0f : std::numeric_limits<float>::quiet_NaN());
  }
  if (!adds_in_place(out))
    lsh_.kernels().store_numbers(sums, numbers_, out.type(),
                                 out.row(lsh_.item(), lsh_.head(), token));
  return lse;
}

}  // namespace rapt
