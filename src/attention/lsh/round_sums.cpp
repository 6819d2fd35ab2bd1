#include "attention/lsh/round_sums.h"

#include <algorithm>

#include "attention/lsh/lsh_call.h"
#include "attention/lsh/row_statistics.h"

namespace rapt::detail {

RoundSums::RoundSums(const LshCall& lsh, const AnyMutableView& out)
    : lsh_(lsh),
      scratch_(adds_in_place(out) ? 0 : checked_product({lsh.tokens(), lsh.value_dim()})),
      out_(out),
      stride_(adds_in_place(out) ? out.stride(2) : lsh.value_dim()),
      numbers_(lsh.value_dim()),
      rounds_(lsh.order().rounds()),
      running_max_(lsh.tokens()),
      denominators_(checked_product({lsh.tokens(), lsh.order().rounds()})) {}

void RoundSums::begin(Index item, Index head) {
  sums_ = adds_in_place(out_) ? static_cast<float*>(out_.row(item, head, 0)) : scratch_.data();
  std::fill(running_max_.begin(), running_max_.end(), -std::numeric_limits<double>::infinity());
  section_ = std::make_unique<OrderedSection>(1);
}

Index RoundSums::token_of(Index sorted_index) const {
  return lsh_.call().query_order->rows[sorted_index];
}

void RoundSums::add_to(float* sums, const float* share) const {
  lsh_.kernels().network->add(sums, share, numbers_);
}

void RoundSums::prefetch(Index query_tile) const {
  const Index end = std::min(lsh_.sorted_count(), (query_tile + 1) * tile);
  for (Index sorted_index = query_tile * tile; sorted_index < end; ++sorted_index) {
    const Index token = token_of(sorted_index);
    if (token < 0) continue;
    prefetch_numbers(row(token), numbers_);
    prefetch_numbers(&running_max_[token], 1);
    prefetch_numbers(&denominators_[token * rounds_], 1);
  }
}

double RoundSums::note(Index sorted_index, Index token, double max, double sum) {
  const double lse = SortedRule::natural(static_cast<float>(max)) + std::log(sum);
  denominators_[token * rounds_ + sorted_index / lsh_.order().sorted_per_round()] = lse;
  return lse;
}

double RoundSums::finish(Index token, const AnyMutableView& out) {
  const double lse =
      joint_lse(denominators_.data() + token * rounds_, rounds_, lsh_.rounds_denominators());
  float* sums = row(token);
  if (std::isfinite(lse)) {
    const auto factor = static_cast<float>(std::exp(running_max_[token] - lse));
    lsh_.kernels().network->scale(sums, factor, numbers_, sums);
  } else {
    // A denominator of -inf is a token that sees nothing; NaN and +inf make the row NaN.
    const bool nothing = lse == -std::numeric_limits<double>::infinity();
    std::fill(sums, sums + numbers_, nothing ? 0.0f : std::numeric_limits<float>::quiet_NaN());
  }
  if (!adds_in_place(out))
    lsh_.kernels().vectors.store(sums, numbers_, out.type(),
                                 out.row(lsh_.item(), lsh_.head(), token));
  return lse;
}

}  // namespace rapt::detail
