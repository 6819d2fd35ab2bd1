#include "rapt/distributed/prediction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "distributed/exchange/pair_needs.h"
#include "rapt/distributed/attention.h"
#include "rapt/distributed/counting.h"
#include "rapt/lsh.h"
#include "support/refused.h"

namespace rapt::test {
namespace {

using namespace distributed;

std::vector<Pattern> patterns() {
  return {causal(),
          full(),
          window(256, 256) | tokens({0}),
          window(100, 0) | tokens({0, 1500}),
          causal() & documents({700, 100, 90, 1000, 158}),
          dilated(7, 20, 20),
          causal() | prefix(300)};
}

constexpr Index token_count = 2048;

struct Bytes {
  std::atomic<Index> forward = 0, backward = 0;
};

/// What ranks really send.
void run_call(Communicator& communicator, const Exchange& exchange, const CallSize& size,
              Bytes& sent) {
  CountingCommunicator counting(communicator);
  const Index own = exchange.queries().tokens(communicator.rank());
  const Tensor q({size.batch, size.heads, own, size.dim}, size.type);
  const Tensor k({size.batch, size.kv_heads, own, size.dim}, size.type);
  const Tensor v({size.batch, size.kv_heads, own, size.value_dim}, size.type);
  const Tensor dout({size.batch, size.heads, own, size.value_dim}, size.type);
  const Attention how{.pattern = exchange.pattern()};
  const Context context(1);
  const Attended y = attend(counting, exchange, q, k, v, how, context);
  sent.forward += counting.counts().bytes_sent;
  counting.reset();
  attend_backward(counting, exchange, dout, q, k, v, y, how, context);
  sent.backward += counting.counts().bytes_sent;
}

TEST(ThreadRanksLoad, CountsTheBytesThatAreSent) {
  const CallSize size{.batch = 2, .heads = 4, .kv_heads = 2, .dim = 32, .value_dim = 16};
  CallSize narrow = size;
  narrow.type = Type::bf16;
  Index number = 0;
  for (const Pattern& pattern : patterns())
    for (const bool strict : {false, true}) {
      const Index ranks = 2 + number++ % 3;
      const CallSize& some = number % 2 == 0 ? size : narrow;
      const Placement placement =
          balanced_placement(token_count, ranks, {&pattern, 1}, {.granule = strict ? 8 : 1});
      const Exchange exchange(pattern, placement, {.strict = strict, .group = 2});
      Bytes sent;
      run_ranks(ranks,
                [&](Communicator& communicator) { run_call(communicator, exchange, some, sent); });
      const ExchangeLoad load = load_of(exchange, some);
      const std::string where = to_string(pattern) + (strict ? ", strict" : "");
      EXPECT_EQ(static_cast<Index>(load.forward_bytes()), sent.forward) << where;
      EXPECT_EQ(static_cast<Index>(load.backward_bytes()), sent.backward) << where;
      double received = 0;
      for (const RankLoad& rank : load.ranks) received += rank.forward_bytes_received;
      EXPECT_EQ(received, load.forward_bytes()) << where;
      EXPECT_LT(load.forward_bytes_needed, load.forward_bytes() + 1) << where;
      EXPECT_LT(load.backward_bytes_needed, load.backward_bytes() + 1) << where;
    }
}

TEST(ThreadRanksLoad, HasAllPairsAndTokens) {
  for (const Pattern& pattern : patterns()) {
    const Placement placement = balanced_placement(token_count, 3, {&pattern, 1});
    const ExchangeLoad load = load_of({pattern, placement});
    const Plan plan(pattern, {token_count, token_count});
    double pairs = 0, computed = 0;
    Index tokens = 0;
    for (const RankLoad& rank : load.ranks) {
      pairs += rank.pairs;
      computed += rank.computed;
      tokens += rank.tokens;
    }
    EXPECT_EQ(pairs, static_cast<double>(plan.pairs())) << to_string(pattern);
    EXPECT_EQ(tokens, token_count);
    EXPECT_NEAR(computed / load.computed, 1, 1e-2) << to_string(pattern);
    EXPECT_GE(load.imbalance(), 1 - 1e-9);
  }
}

/// The cheapest cover of the visits between two ranks, by trying every set of query tiles.
double cheapest_cover(const detail::PairQuestion& question) {
  const std::size_t count = question.query_tiles.size();
  double best = 1e300;
  for (std::size_t set = 0; set < std::size_t{1} << count; ++set) {
    std::vector<Index> rest;
    double cost = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if ((set >> i & 1) != 0)
        cost += question.query_cost;
      else
        rest.push_back(question.query_tiles[i]);
    }
    const auto needs =
        detail::pair_needs({question.plan, rest, question.key_runs, question.query_cost, true});
    best = std::min(best, cost + static_cast<double>(needs.keys.size()));
  }
  return best;
}

TEST(ThreadRanksLoad, NeedsNoMoreThanTheCheapestCover) {
  for (const Pattern& pattern : patterns()) {
    const Plan plan(pattern, {token_count, token_count});
    const Placement placement = Placement::zigzag(token_count, 4);
    for (const Index query_rank : {0, 1, 3})
      for (const double query_cost : {0.5, 1.0, 4.0}) {
        const Index key_rank = (query_rank + 1) % 4;
        const Ranges runs = detail::tile_runs(placement, key_rank);
        const detail::PairQuestion question{plan, placement.tiles(query_rank), runs, query_cost,
                                            false};
        const double least = detail::least_cost(question), cover = cheapest_cover(question);
        EXPECT_LE(least, cover + 1e-9) << to_string(pattern);
        EXPECT_GE(least, 0.6 * cover) << to_string(pattern) << ", a matching is not that bad";
      }
  }
}

TEST(ThreadRanksLoad, IsEstimatedWithoutAPlan) {
  for (const Pattern& pattern : {causal(), full(), window(256, 256) | tokens({0}),
                                 window(700, 0) | tokens({0, 20'000}), causal() | prefix(5000)})
    for (const Index ranks : {2, 5, 16}) {
      constexpr Index many = 65'536;
      const Placement placement = balanced_placement(many, ranks, {&pattern, 1});
      const ExchangeLoad exact = load_of({pattern, placement});
      const ExchangeLoad estimate = estimated_load(pattern, placement);
      const std::string where = to_string(pattern) + " on " + std::to_string(ranks) + " ranks";
      EXPECT_TRUE(estimate.estimated);
      EXPECT_FALSE(exact.estimated);
      EXPECT_NEAR(estimate.pairs / exact.pairs, 1, 0.02) << where;
      EXPECT_NEAR(estimate.computed / exact.computed, 1, 0.02) << where;
      EXPECT_NEAR(estimate.imbalance() / exact.imbalance(), 1, 0.03) << where;
      EXPECT_NEAR(estimate.forward_bytes() / exact.forward_bytes(), 1, 0.05) << where;
      EXPECT_NEAR(estimate.backward_bytes() / exact.backward_bytes(), 1, 0.05) << where;
    }
}

/// 100 million tokens on 1,000 ranks: no plan would fit memory.
TEST(ThreadRanksLoad, IsEstimatedForSizesThatNoMachineHas) {
  constexpr Index many = 100'000'000, ranks = 1000;
  const Pattern pattern = window(256, 256) | tokens({0, 50'000'000});
  const Placement placement = estimated_placement(many, ranks, pattern);
  const ExchangeLoad load = estimated_load(pattern, placement, {}, {}, 16);
  const double window_pairs = 513.0 * many;
  EXPECT_NEAR(load.pairs / (window_pairs + 4.0 * many), 1, 0.01);
  EXPECT_LT(load.imbalance(), 1.05);
  // Halos of four tiles to each side, the two tiles with global keys, and two with global queries.
  const Traffic& middle = load.ranks[ranks / 3].traffic;
  EXPECT_NEAR(static_cast<double>(middle.keys_received), 10, 1);
  EXPECT_EQ(middle.queries_received, 2);
}

TEST(ThreadRanksPrediction, OfAnIdealNetworkIsTheImbalance) {
  const Pattern pattern = causal();
  const ExchangeLoad load = load_of({pattern, Placement::contiguous(4096, 4)});
  const Machine machine{
      .forward_gflops = 100, .backward_gflops = 50, .network_gbits = 1e12, .latency_us = 0};
  const Prediction both = predict(load, {}, machine, RankPass::both);
  EXPECT_NEAR(both.efficiency, 1 / load.imbalance(), 1e-6);
  EXPECT_EQ(both.slowest, 3);
  const double flops = load.computed * 8 * pair_flops({}, RankPass::forward);
  EXPECT_NEAR(predict(load, {}, machine, RankPass::forward).one_rank_ms, flops / 100 * 1e-6, 1e-9);
  Machine shared = machine;
  shared.ranks_at_once = 1;
  EXPECT_NEAR(predict(load, {}, shared, RankPass::both).efficiency, 0.25, 1e-3);
}

TEST(ThreadRanksPrediction, WaitsForWhatNothingHides) {
  const Pattern pattern = causal();
  const ExchangeLoad load = load_of({pattern, Placement::zigzag(16'384, 2)});
  Machine machine{.forward_gflops = 100, .backward_gflops = 100};
  const auto time = [&](RankPass pass) { return predict(load, {}, machine, pass).time_ms; };
  const double fast = time(RankPass::forward);
  EXPECT_NEAR(time(RankPass::both), fast + time(RankPass::backward), 1e-9);
  machine.overlap = 0;  // 16.8 MB come and go at 10 Gbit/s, a message for each head
  const double bytes =
      std::max(load.ranks[0].forward_bytes_sent, load.ranks[0].forward_bytes_received);
  machine.network_gbits = 1e12;
  machine.latency_us = 0;
  const double alone = time(RankPass::forward);
  machine.network_gbits = 1;
  EXPECT_NEAR(time(RankPass::forward) - alone, bytes * 8e-6, 1);
  machine.overlap = 1;
  EXPECT_LT(time(RankPass::forward), alone + bytes * 8e-6);
  EXPECT_GT(predict(load, {}, machine, RankPass::forward).waiting_share, 0);
}

TEST(ThreadRanksPrediction, RefusesWhatItCannotKnow) {
  const ExchangeLoad load = load_of({causal(), Placement::contiguous(128, 2)});
  expect_refused(
      [&] {
        predict(load, {}, {.forward_gflops = 1, .backward_gflops = 1, .ranks_at_once = 0},
                RankPass::both);
      },
      {"0 ranks at once"});
  expect_refused([&] { predict(load, {}, {}, RankPass::both); }, {"0 GFLOP/s", "more than 0"});
  expect_refused(
      [&] {
        predict(load, {}, {.forward_gflops = 1, .backward_gflops = 1, .network_gbits = 0},
                RankPass::both);
      },
      {"0 Gbit/s"});
  expect_refused(
      [] {
        load_of({lsh({.chunk = 64}), Placement::contiguous(128, 2)});
      },
      {"load_of", "without lsh"});
  expect_refused([] { estimated_load(causal(), Placement::contiguous(128, 2), {}, {}, 0); },
                 {"0 queries of each rank given, expected 1 or more"});
}

}  // namespace
}  // namespace rapt::test
