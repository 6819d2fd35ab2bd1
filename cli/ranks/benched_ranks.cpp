#include "cli/ranks/benched_ranks.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "cli/bench/timing.h"
#include "cli/ranks/rank_results.h"
#include "rapt/distributed/attention.h"
#include "rapt/distributed/counting.h"
#include "rapt/lsh.h"

namespace rapt::cli {
namespace {

using namespace distributed;
using Clock = std::chrono::steady_clock;

double since_ms(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// The calls of one machine.
struct OneRank {
  AnyView q, k, v, dout;
  Attention how;
  Context context;

  Attended forward() const { return attend(q, k, v, how, context); }
  Gradients backward(const Attended& y) const {
    return attend_backward(dout, q, k, v, y, how, context);
  }
};

/// The calls of a rank, over its own tokens.
struct OneOfRanks {
  Communicator& communicator;
  const Exchange& exchange;
  AnyView q, k, v, dout;
  Attention how;
  Context context;

  Attended forward() const { return attend(communicator, exchange, q, k, v, how, context); }
  Gradients backward(const Attended& y) const {
    return attend_backward(communicator, exchange, dout, q, k, v, y, how, context);
  }
};

/// Runs the pass. `prepare` is done before the clock starts: backward needs what forward left.
template <class Calls, class Prepare>
double time_pass(const Calls& calls, RankPass pass, const Prepare& prepare) {
  std::optional<Attended> y;
  if (pass == RankPass::backward) y = calls.forward();
  prepare();
  const auto start = Clock::now();
  if (!y) y = calls.forward();
  if (pass != RankPass::forward) calls.backward(*y);
  return since_ms(start);
}

template <class Calls>
RankResults results_of(const Calls& calls, RankPass pass) {
  RankResults results;
  Attended y = calls.forward();
  if (pass != RankPass::forward) results.gradients = calls.backward(y);
  results.out = std::move(y.out);
  return results;
}

const char* name_of(RankPass pass) {
  if (pass == RankPass::both) return "both";
  return pass == RankPass::forward ? "forward" : "backward";
}

/// Medians over the repeats; a repeat takes as long as its slowest rank.
struct RankTiming {
  RankTiming(const std::vector<RankSamples>& samples) {
    std::vector<double> slowest, speedups, one = samples.front().one_rank_ms;
    double waited = 0, all = 0;
    for (std::size_t i = 0; i < one.size(); ++i) {
      double most = 0;
      for (const RankSamples& rank : samples) {
        most = std::max(most, rank.time_ms[i]);
        waited += rank.waited_ms[i];
        all += rank.time_ms[i];
      }
      slowest.push_back(most);
      speedups.push_back(one[i] / most);
    }
    time_ms = median(slowest);
    best_ms = *std::min_element(slowest.begin(), slowest.end());
    spread = rapt::cli::spread(slowest);
    one_rank_ms = median(one);
    speedup = median(speedups);
    waiting_share = all == 0 ? 0 : waited / all;
  }

  double time_ms, best_ms, spread, one_rank_ms, speedup, waiting_share;
};

}  // namespace

BenchedRanks::BenchedRanks(const Case& c, const RankBenchSetup& setup)
    : c_(c),
      setup_(setup),
      rule_(rule_of(c)),
      q_(random_tensor(c.q_shape(), 1, from_string<Type>(c.dtype))),
      k_(random_tensor(c.k_shape(), 2, from_string<Type>(c.dtype))),
      v_(random_tensor(c.v_shape(), 3, from_string<Type>(c.dtype))),
      dout_(random_tensor(c.out_shape(), 4, from_string<Type>(c.dtype))) {}

CallSize BenchedRanks::size() const {
  const Shape k = c_.k_shape(), v = c_.v_shape();
  return {.batch = c_.batch,
          .heads = c_.heads,
          .kv_heads = k[1],
          .dim = c_.dim,
          .value_dim = v[3],
          .type = from_string<Type>(c_.dtype)};
}

Exchange BenchedRanks::exchange(Index ranks) const {
  const Pattern& pattern = rule_.how.pattern;
  const Index tokens = c_.tokens, group = c_.heads / c_.k_shape()[1];
  const Index granule = setup_.strict ? 8 : 1;
  const Placement placement =
      lsh_part(pattern) ? Placement::contiguous(tokens, ranks)
                        : balanced_placement(tokens, ranks, {&pattern, 1}, {.granule = granule});
  return {pattern, placement, {.strict = setup_.strict, .group = group}};
}

std::optional<Json> BenchedRanks::measure(Communicator& communicator, RankPass pass,
                                          Index ranks) const {
  const Exchange exchange = this->exchange(ranks);
  const Index rank = communicator.rank();
  const Context context(setup_.threads, setup_.isa);
  CountingCommunicator counting(communicator);
  const Placement& placement = exchange.queries();
  const Tensor q = shard(q_, placement, rank), k = shard(k_, placement, rank);
  const Tensor v = shard(v_, placement, rank), dout = shard(dout_, placement, rank);
  const bool hashed = lsh_part(rule_.how.pattern).has_value();  // queries are keys, too
  const OneOfRanks mine{counting, exchange, q, hashed ? q : k, v, dout, rule_.how, context};
  OneRank whole{q_, hashed ? q_ : k_, v_, dout_, rule_.how, context};
  whole.how.strict = setup_.strict;
  if (!hashed) whole.how.plan = std::make_shared<const Plan>(rule_.how.pattern, c_.lengths());

  // The first calls: they also find their memory.
  const RankResults got = results_of(mine, pass);
  quiet_barrier(communicator);
  std::optional<RankResults> want;
  if (rank == 0) want = results_of(whole, pass);
  const RankDifference difference = compare_results(communicator, got, want, placement);

  const RankNetwork network = measure_network(communicator);
  RankSamples samples;
  for (int repeat = 0; repeat < setup_.repeats; ++repeat) {
    if (rank == 0) samples.one_rank_ms.push_back(time_pass(whole, pass, [] {}));
    quiet_barrier(communicator);
    samples.time_ms.push_back(time_pass(mine, pass, [&] {
      barrier(communicator);
      counting.reset();
    }));
    const MessageCounts& counts = counting.counts();
    samples.waited_ms.push_back(std::chrono::duration<double, std::milli>(counts.waited).count());
    samples.bytes_sent = counts.bytes_sent;
  }
  const std::vector<RankSamples> all = gather_samples(communicator, samples);
  if (rank != 0) return std::nullopt;
  return row(communicator, pass, exchange, all, difference, network);
}

namespace {

double pass_bytes_needed(const ExchangeLoad& load, RankPass pass) {
  return (pass == RankPass::backward ? 0 : load.forward_bytes_needed) +
         (pass == RankPass::forward ? 0 : load.backward_bytes_needed);
}

/// The machine on which one rank takes the measured time.
Machine machine_of(const ExchangeLoad& load, const CallSize& size, const RankNetwork& network,
                   RankPass pass, double one_rank_ms) {
  const double flops =
      load.computed * pair_flops(size, pass) * static_cast<double>(size.heads * size.batch);
  const double gflops = flops / one_rank_ms * 1e-6;
  // A link faster than this is memory, which the CPUs of the ranks copy.
  constexpr double fastest_link = 25;
  return {.forward_gflops = gflops,
          .backward_gflops = gflops,
          .network_gbits = network.gbits,
          .latency_us = network.latency_us,
          .overlap = network.gbits > fastest_link ? 0.0 : 1.0};
}

}  // namespace

Json BenchedRanks::row(Communicator& communicator, RankPass pass, const Exchange& exchange,
                       const std::vector<RankSamples>& samples, const RankDifference& difference,
                       const RankNetwork& network) const {
  const RankTiming timing(samples);
  const Index ranks = communicator.size();
  Index bytes_sent = 0;
  for (const RankSamples& rank : samples) bytes_sent += rank.bytes_sent;
  Json predicted = nullptr, needed = nullptr, imbalance = nullptr;
  if (!lsh_part(rule_.how.pattern)) {
    const ExchangeLoad load = load_of(exchange, size());
    needed = static_cast<Index>(pass_bytes_needed(load, pass));
    imbalance = load.imbalance();
    if (ranks > 1) {
      Machine machine = machine_of(load, size(), network, pass, timing.one_rank_ms);
      const Index at_once = std::max<Index>(1, usable_cpus() / setup_.threads);
      if (communicator.backend() == "threads" && ranks > at_once) machine.ranks_at_once = at_once;
      predicted = predict(load, size(), machine, pass).time_ms;
    }
  }
  return {{"case", c_.name},
          {"pattern", to_string(rule_.how.pattern)},
          {"tokens", c_.tokens},
          {"batch", c_.batch},
          {"heads", c_.heads},
          {"kv_heads", c_.k_shape()[1]},
          {"dim", c_.dim},
          {"dtype", c_.dtype},
          {"isa", Context(setup_.threads, setup_.isa).isa()},
          {"backend", communicator.backend()},
          {"ranks", ranks},
          {"threads", setup_.threads},
          {"strict", setup_.strict},
          {"pass", name_of(pass)},
          {"time_ms", timing.time_ms},
          {"best_ms", timing.best_ms},
          {"spread", timing.spread},
          {"one_rank_ms", timing.one_rank_ms},
          {"efficiency", timing.speedup / static_cast<double>(ranks)},
          {"predicted_ms", predicted},
          {"imbalance", imbalance},
          {"bytes_sent", bytes_sent},
          {"bytes_needed", needed},
          {"waiting_share", timing.waiting_share},
          {"network_gbits", ranks > 1 ? Json(network.gbits) : Json(nullptr)},
          {"latency_us", ranks > 1 ? Json(network.latency_us) : Json(nullptr)},
          {"same_bits", difference.same_bits},
          {"max_difference_ulps", difference.ulps}};
}

}  // namespace rapt::cli
