#include <algorithm>

#include "base/check.h"
#include "base/indexed_vector.h"
#include "distributed/exchange/load_bytes.h"

namespace rapt::distributed {
using namespace rapt::detail;

namespace {

template <class Value>
double sum_over(const std::vector<RankLoad>& ranks, const Value& value) {
  double sum = 0;
  for (const RankLoad& rank : ranks) sum += value(rank);
  return sum;
}

/// The time of one pass on one rank.
struct RankTime {
  double compute_ms = 0;
  double exposed_ms = 0;  // of transfers that nothing hides

  double all() const { return compute_ms + exposed_ms; }
};

class RankClock {
 public:
  RankClock(const ExchangeLoad& load, const CallSize& size, const Machine& machine)
      : load_(load), size_(size), machine_(machine) {}

  double compute_ms(double pairs, RankPass pass, bool strict) const {
    const double gflops =
        pass == RankPass::forward ? machine_.forward_gflops : machine_.backward_gflops;
    const double heads = static_cast<double>(size_.heads * size_.batch);
    return pairs * heads * pair_flops(size_, pass, strict) / gflops * 1e-6;
  }

  RankTime time(const RankLoad& rank, RankPass pass) const {
    const bool forward = pass == RankPass::forward;
    const double sent = forward ? rank.forward_bytes_sent : rank.backward_bytes_sent;
    const double received = forward ? rank.forward_bytes_received : rank.backward_bytes_received;
    RankTime time{.compute_ms = compute_ms(rank.computed, pass, load_.strict)};
    if (rank.messages == 0) return time;
    const double transfer = std::max(sent, received) * 8e-6 / machine_.network_gbits +
                            static_cast<double>(rank.messages) * machine_.latency_us * 1e-3;
    const double beside = transfer * machine_.overlap;
    // The first heads' messages have nothing to run beside, and the last heads' results neither.
    const auto ranges = static_cast<double>(head_ranges(size_, rank.tokens));
    const double first = beside / ranges;
    time.exposed_ms = transfer - beside + first + std::max(0.0, beside - first - time.compute_ms);
    return time;
  }

 private:
  const ExchangeLoad& load_;
  const CallSize& size_;
  const Machine& machine_;
};

Prediction predict_pass(const ExchangeLoad& load, const CallSize& size, const Machine& machine,
                        RankPass pass) {
  const RankClock clock(load, size, machine);
  Prediction prediction{.one_rank_ms = clock.compute_ms(load.computed, pass, false)};
  double sum = 0, exposed = 0;
  for (Index i = 0; i < std::ssize(load.ranks); ++i) {
    const RankTime time = clock.time(element(load.ranks, i), pass);
    sum += time.all();
    if (time.all() <= prediction.time_ms) continue;
    prediction.time_ms = time.all();
    prediction.slowest = i;
    exposed = time.exposed_ms;
  }
  if (machine.ranks_at_once)
    prediction.time_ms =
        std::max(prediction.time_ms, sum / static_cast<double>(*machine.ranks_at_once));
  if (prediction.time_ms > 0) prediction.waiting_share = exposed / prediction.time_ms;
  return prediction;
}

}  // namespace

double ExchangeLoad::forward_bytes() const {
  return sum_over(ranks, [](const RankLoad& rank) { return rank.forward_bytes_sent; });
}

double ExchangeLoad::backward_bytes() const {
  return sum_over(ranks, [](const RankLoad& rank) { return rank.backward_bytes_sent; });
}

double ExchangeLoad::imbalance() const {
  double most = 0;
  for (const RankLoad& rank : ranks) most = std::max(most, rank.computed);
  const double all = sum_over(ranks, [](const RankLoad& rank) { return rank.computed; });
  return all == 0 ? 1 : most * static_cast<double>(ranks.size()) / all;
}

double pair_flops(const CallSize& size, RankPass pass, bool strict) {
  const auto dim = static_cast<double>(size.dim), value_dim = static_cast<double>(size.value_dim);
  const double forward = 2 * (dim + value_dim);
  // Strict: scores and their gradients once for dq, and once again for dk and dv.
  const double backward = strict ? 2 * (4 * dim + 3 * value_dim) : 2 * (3 * dim + 2 * value_dim);
  if (pass == RankPass::both) return forward + backward;
  return pass == RankPass::forward ? forward : backward;
}

Prediction predict(const ExchangeLoad& load, const CallSize& size, const Machine& machine,
                   RankPass pass) {
  check(machine.forward_gflops > 0 && machine.backward_gflops > 0,
        "predict: ", machine.forward_gflops, " GFLOP/s forward and ", machine.backward_gflops,
        " backward given, expected more than 0");
  check(machine.network_gbits > 0 && machine.latency_us >= 0, "predict: a network of ",
        machine.network_gbits, " Gbit/s and ", machine.latency_us,
        " us given, expected more than 0 and 0 or more");
  check(machine.ranks_at_once.value_or(1) >= 1, "predict: ", machine.ranks_at_once.value_or(1),
        " ranks at once given, expected 1 or more");
  Prediction all;
  double waiting_ms = 0;
  for (const RankPass one : {RankPass::forward, RankPass::backward}) {
    if (pass != one && pass != RankPass::both) continue;
    const Prediction part = predict_pass(load, size, machine, one);
    waiting_ms += part.time_ms * part.waiting_share;
    all.time_ms += part.time_ms;
    all.one_rank_ms += part.one_rank_ms;
    all.slowest = part.slowest;
  }
  if (all.time_ms == 0) return all;
  all.efficiency = all.one_rank_ms / (static_cast<double>(load.ranks.size()) * all.time_ms);
  all.waiting_share = waiting_ms / all.time_ms;
  return all;
}

}  // namespace rapt::distributed
