#include "attention/lsh/row_statistics.h"

#include <cmath>

#include "attention/lsh/sorted_rule.h"
#include "attention/score/score_rule.h"
#include "base/numerics.h"

namespace rapt::detail {

double joint_lse(const double* of_round, Index rounds, bool shared) {
  double most = minus_infinity;
  for (Index r = 0; r < rounds; ++r) {
    if (std::isnan(of_round[r])) most = of_round[r];
    if (of_round[r] > most) most = of_round[r];  // false if either is NaN
  }
  if (!std::isfinite(most)) return most;
  const bool rounded = shared && SortedRule::alone(most);
  const auto as_kept = [&](double x) {
    return rounded ? static_cast<double>(static_cast<float>(x)) : x;
  };
  double sum = 0;
  for (Index r = 0; r < rounds; ++r) sum += std::exp(as_kept(of_round[r]) - as_kept(most));
  return as_kept(as_kept(most) + std::log(sum));
}

RowStatistics row_statistics(double lse, bool shared) {
  const double exponent = shared ? SortedRule::in_log2(lse) : lse * log2_e;
  const double whole = std::isfinite(exponent) ? std::floor(exponent) : exponent;
  const auto max = static_cast<float>(whole);
  return {max, lse == minus_infinity ? 0 : std::exp2(exponent - static_cast<double>(max))};
}

}  // namespace rapt::detail
