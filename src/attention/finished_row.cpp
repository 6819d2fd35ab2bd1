#include "attention/finished_row.h"

#include <cmath>
#include <limits>
#include <utility>

namespace rapt::detail {
namespace {

/// Sums over outcomes with the largest one left out: what a saturated row needs to keep its last
/// digits.
struct Outcomes {
  double largest = 0, others = 0, others2 = 0, others3 = 0;

  void add(double p) {
    const double smaller = std::min(largest, p);
    largest = std::max(largest, p);
    others += smaller;
    others2 += smaller * smaller;
    others3 += smaller * smaller * smaller;
  }

  /// Frobenius norm of diag(p) - p p', from sums that do not cancel.
  double jacobian_norm() const {
    const double head = largest * largest;
    return std::sqrt(std::max(0.0, head * others * others + others2 - 2 * others3 +
                                       2 * head * others2 + others2 * others2));
  }
};

double total(const Call& call, const SoftmaxTile& state, Stat stat, Index r) {
  double sum = state.stats[stat * tile + r];
  for (Index lane = 0; lane < call.kernels.lanes; ++lane) {
    sum += static_cast<double>(state.lane_stats[(stat * tile + r) * max_lanes + lane]);
  }
  return sum;
}

/// The keys' outcomes; probabilities are `factor` times what the kernel summed.
Outcomes key_outcomes(const Call& call, const SoftmaxTile& state, Index r, double factor) {
  Outcomes outcomes;
  outcomes.others = state.stats[stat_others * tile + r] * factor;
  outcomes.others2 = state.stats[stat_others2 * tile + r] * factor * factor;
  outcomes.others3 = state.stats[stat_others3 * tile + r] * factor * factor * factor;
  for (Index lane = 0; lane < call.kernels.lanes; ++lane) {
    const auto at = [&](Stat stat) {
      return static_cast<double>(state.lane_stats[(stat * tile + r) * max_lanes + lane]);
    };
    outcomes.others += at(stat_others) * factor;
    outcomes.others2 += at(stat_others2) * factor * factor;
    outcomes.others3 += at(stat_others3) * factor * factor * factor;
    outcomes.add(at(stat_largest) * factor);
  }
  return outcomes;
}

double logit_variance(const Call& call, const SoftmaxTile& state, Index r) {
  const double seen = total(call, state, stat_seen, r);
  if (seen == 0) return 0;
  const double mean = total(call, state, stat_z, r) / seen;
  return std::max(0.0, total(call, state, stat_z2, r) / seen - mean * mean) * ln_2 * ln_2;
}

}  // namespace

Stats make_stats(const Shape& shape) {
  return {Tensor(shape), Tensor(shape), Tensor(shape), Tensor(shape), Tensor(shape), Tensor(shape)};
}

void write_stats(const Call& call, const SoftmaxTile& state, const FinishedRow& row, Stats& stats) {
  const Index r = row.r;
  const auto put = [&](Tensor& into, double value) {
    into.data()[row.row] = static_cast<float>(value);
  };
  if (state.running_max[r] == -std::numeric_limits<float>::infinity()) return;
  const double sink = call.score_rule.has_sinks()
                          ? std::exp2(call.score_rule.sink_log2(row.head) - row.max) / row.sum
                          : 0;
  const double factor = std::exp2(static_cast<double>(state.running_max[r]) - row.max) / row.sum;
  Outcomes outcomes = key_outcomes(call, state, r, factor);
  put(stats.largest, outcomes.largest);
  put(stats.logit_variance, logit_variance(call, state, r));
  put(stats.reach, total(call, state, stat_distance, r) * factor);
  put(stats.sink_mass,
      call.score_rule.has_sinks() ? sink : std::exp2(row.first_key - row.max) / row.sum);

  // H = log Z - sum p z, everything measured from the row's shift.
  const double shift = static_cast<double>(state.shift[r]);
  double entropy = row.max - shift + std::log2(row.sum) - total(call, state, stat_pz, r) * factor;
  if (sink > 0) entropy -= sink * (call.score_rule.sink_log2(row.head) - shift);
  put(stats.entropy, std::max(0.0, entropy) * ln_2);

  if (sink > 0) outcomes.add(sink);
  put(stats.jacobian_norm, outcomes.jacobian_norm());
}

}  // namespace rapt::detail
