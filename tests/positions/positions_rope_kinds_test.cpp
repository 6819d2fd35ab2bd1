#include <gtest/gtest.h>

#include <cmath>

#include "support/engine.h"
#include "support/truth/bound.h"
#include "support/truth/rope_truth.h"

// Ropes with several axes, and ropes with xPos's decay.
namespace rapt::test {
namespace {

/// Three positions of a token that have nothing in common.
std::vector<Index> place(Index item, Index token) {
  return {token / 3, 100 * item + token % 7, 3000 - token};
}

std::vector<Index> grid_numbers(Index batch, Index tokens) {
  std::vector<Index> numbers;
  for (std::size_t axis = 0; axis < 3; ++axis)
    for (Index item = 0; item < batch; ++item)
      for (Index token = 0; token < tokens; ++token) numbers.push_back(place(item, token)[axis]);
  return numbers;
}

void expect_axes(const RopeSections& sections, TrueRope truth) {
  const Index dim = 128;
  const Rope rope({.dim = dim, .base = 1e6, .sections = sections});
  const Tensor x = random_tensor({2, 2, 70, dim}, 1);
  const std::vector<Index> numbers = grid_numbers(2, 70);
  const Doubles want = turned(truth, x, place);
  for (const Context& context : every_isa()) {
    Tensor got = x.clone();
    rope.apply(got, Positions::grid(numbers, 3), context);
    EXPECT_SILENT(far_from(want, got, context.isa()));
    rope.apply_backward(got, Positions::grid(numbers, 3), context);
    EXPECT_SILENT(far_from(doubles(x), got, "there and back on " + context.isa(), 4));
  }
}

TEST(RopeKinds, BlocksOfPairsFollowTheirAxes) {
  TrueRope truth{true_frequencies(1e6, 128)};
  for (std::size_t i = 0; i < 64; ++i) truth.axis.push_back(i < 16 ? 0 : i < 40 ? 1 : 2);
  expect_axes({.pairs = {16, 24, 24}}, truth);
}

TEST(RopeKinds, InterleavedPairsAlternateUntilAnAxisHasEnough) {
  TrueRope truth{true_frequencies(1e6, 128)};
  truth.axis.assign(64, 0);
  for (const std::size_t axis : {1, 2})
    for (std::size_t i = axis; i < 60; i += 3) truth.axis[i] = static_cast<Index>(axis);
  expect_axes({.pairs = {24, 20, 20}, .order = RopeSections::Order::interleaved}, truth);
}

TEST(RopeKinds, RestartedSectionsCountTheirOwnFrequencies) {
  TrueRope truth;
  for (const Index pairs : {32, 16, 16})
    for (const long double frequency : true_frequencies(1e6, 2 * pairs)) {
      truth.frequency.push_back(frequency);
      truth.axis.push_back(pairs == 32 ? 0 : truth.axis.size() < 48 ? 1 : 2);
    }
  expect_axes({.pairs = {32, 16, 16}, .order = RopeSections::Order::restarted}, truth);
}

TEST(RopeKinds, TextOnEqualAxesIsAnOrdinaryRope) {
  const Tensor x = random_tensor({2, 2, 30, 64}, 2);
  const Rope plain({.dim = 64}), sections({.dim = 64, .sections = {.pairs = {8, 12, 12}}});
  std::vector<Index> numbers;
  for (int axis = 0; axis < 3; ++axis)
    for (Index token = 0; token < 30; ++token) numbers.push_back(5 + token);
  Tensor want = x.clone(), counted = x.clone(), on_grid = x.clone();
  plain.apply(want, 5);
  sections.apply(counted, 5);
  sections.apply(on_grid, Positions::grid(numbers, 3));
  EXPECT_SILENT(different_bits("counted", counted.numbers(), want.numbers()));
  EXPECT_SILENT(different_bits("grid", on_grid.numbers(), want.numbers()));
}

TEST(RopeKinds, GridsReachBeyondTheTables) {
  const Rope rope({.dim = 4, .sections = {.pairs = {1, 1}}});
  const TrueRope truth{true_frequencies(10000, 4), RopeLayout::half_split, 1, {0, 1}};
  const std::vector<Index> numbers{3, -5, 5000000, 8};  // two tokens on two axes
  const Tensor x = random_tensor({1, 1, 2, 4}, 3);
  Tensor y = x.clone();
  rope.apply(y, Positions::grid(numbers, 2));
  const Doubles want = turned(truth, x, [&](Index, Index token) {
    return std::vector<Index>{numbers[static_cast<std::size_t>(token)],
                              numbers[static_cast<std::size_t>(2 + token)]};
  });
  EXPECT_SILENT(far_from(want, y, "grid"));
}

long double zeta(Index pair, Index channels) {
  return (2 * static_cast<long double>(pair) + 0.4L * static_cast<long double>(channels)) /
         (1.4L * static_cast<long double>(channels));
}

TrueRope true_xpos(Index channels, Index center, int sign) {
  TrueRope truth{true_frequencies(10000, channels), RopeLayout::interleaved};
  truth.size = [=](Index pair, Index position) {
    return std::pow(zeta(pair, channels),
                    static_cast<long double>(sign * (position - center)) / 512);
  };
  return truth;
}

TEST(RopeKinds, XPosScalesQueriesAndKeysAgainstEachOther) {
  const Index dim = 32, center = 600;
  const Rope rope({.dim = dim, .layout = RopeLayout::interleaved, .xpos = XPos{.center = center}});
  const Tensor x = random_tensor({1, 2, 200, dim}, 4);
  const auto place = [](Index, Index token) { return std::vector<Index>{500 + token}; };
  for (const Context& context : every_isa()) {
    Tensor q = x.clone(), k = x.clone();
    rope.for_queries().apply(q, 500, context);
    rope.for_keys().apply(k, 500, context);
    EXPECT_SILENT(far_from(turned(true_xpos(dim, center, 1), x, place), q, "queries"));
    EXPECT_SILENT(far_from(turned(true_xpos(dim, center, -1), x, place), k, "keys"));
  }
}

TEST(RopeKinds, XPosProductsDecayWithTheDistanceWhateverTheCenter) {
  const Index dim = 64;
  for (const Index center : {0, 900, 2000}) {
    const Rope rope(
        {.dim = dim, .layout = RopeLayout::interleaved, .xpos = XPos{.center = center}});
    for (const Index pair : {0, 10, 31})
      for (const Index distance : {0, 1, 300}) {
        std::vector<float> q(64), k(64);
        q[static_cast<std::size_t>(2 * pair)] = k[static_cast<std::size_t>(2 * pair)] = 1;
        rope.for_queries().apply(MutableView(q, {1, 1, 1, dim}), 1000 + distance);
        rope.for_keys().apply(MutableView(k, {1, 1, 1, dim}), 1000);
        double product = 0;
        for (std::size_t i = 0; i < 64; ++i) product += double{q[i]} * k[i];
        const auto far = static_cast<long double>(distance);
        const long double want = std::pow(zeta(pair, dim), far / 512) *
                                 std::cos(far * true_frequencies(10000, dim)[pair]);
        EXPECT_NEAR(product, static_cast<double>(want), 1e-6);
      }
  }
}

TEST(RopeKinds, XPosGradientsCarryTheSameFactors) {
  const Index dim = 16;
  const Rope rope({.dim = dim, .xpos = XPos{}});
  const Tensor x = random_tensor({1, 1, 40, dim}, 5), dy = random_tensor({1, 1, 40, dim}, 6);
  for (const Rope& side : {rope.for_queries(), rope.for_keys()}) {
    Tensor y = x.clone(), dx = dy.clone();
    side.apply(y, 300);
    side.apply_backward(dx, 300);
    double forward = 0, backward = 0;  // <dy, M x> = <M' dy, x>
    for (std::size_t i = 0; i < 640; ++i) {
      forward += double{dy.numbers()[i]} * y.numbers()[i];
      backward += double{dx.numbers()[i]} * x.numbers()[i];
    }
    EXPECT_NEAR(forward, backward, 1e-5 * std::fabs(forward) + 1e-5);
  }
}

}  // namespace
}  // namespace rapt::test
