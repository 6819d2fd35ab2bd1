#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "support/engine.h"
#include "support/truth/bound.h"
#include "support/truth/rope_truth.h"

namespace rapt::test {
namespace {

const RopeLayout pair_layouts[] = {RopeLayout::half_split, RopeLayout::interleaved};

std::string name(RopeLayout layout) {
  return layout == RopeLayout::half_split ? "half-split" : "interleaved";
}

/// One row at one position.
std::vector<float> turned_row(const Rope& rope, std::vector<float> row, Index position,
                              const Context& context = every_isa().front()) {
  rope.apply(MutableView(row, {1, 1, 1, static_cast<Index>(row.size())}), position, context);
  return row;
}

void expect_row(const std::vector<float>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 5e-7) << i;
}

TEST(Rope, RotatesTheWorkedExampleAsPublished) {
  const std::vector<float> x{1, 2, 3, 4};
  const Rope near({.dim = 4, .base = 100, .layout = RopeLayout::interleaved});
  expect_row(turned_row(near, x, 1), {-1.142639664, 1.922075597, 2.585678829, 4.279516911});
  expect_row(turned_row(near, x, 2), {-2.234741690, 0.077003754, 2.145522410, 4.516274304});
  const Rope far({.dim = 4, .base = 100, .layout = RopeLayout::half_split});
  expect_row(turned_row(far, x, 1), {-1.984110649, 1.590674664, 2.462377902, 4.179683494});
  expect_row(turned_row(far, x, 2), {-3.144039117, 1.165455833, -0.339143083, 4.317604973});
  EXPECT_DOUBLE_EQ(far.frequencies()[0], 1);
  EXPECT_DOUBLE_EQ(far.frequencies()[1], 0.1);  // a positive exponent would make it 10
}

TEST(Rope, ScoresDependOnTheDistanceAsPublished) {
  const Rope rope({.dim = 4, .base = 100, .layout = RopeLayout::interleaved});
  const double scores[] = {2, 1.535306471, 0.563919741};
  for (const Index key : {0, 7, 1000, 1000000})
    for (Index distance = 0; distance < 3; ++distance) {
      const auto q = turned_row(rope, {1, 0, 1, 0}, key + distance);
      const auto k = turned_row(rope, {1, 0, 1, 0}, key);
      double score = 0;
      for (std::size_t i = 0; i < 4; ++i) score += double{q[i]} * k[i];
      EXPECT_NEAR(score, scores[distance], 4e-7) << key;
    }
}

TEST(Rope, CosinesAndSinesAreF32ExactAtAnyPosition) {
  const Index dim = 128;
  for (const double base : {10000.0, 500000.0, 1e6}) {
    const auto frequency = true_frequencies(base, dim);
    const Rope rope({.dim = dim, .base = base});
    std::vector<float> ones(static_cast<std::size_t>(dim));
    std::fill(ones.begin(), ones.begin() + dim / 2, 1.0f);
    for (const Index position : {0, 1, 2, 127, 128, 129, 4095, 131071, 1000000, (1 << 20) - 1,
                                 1 << 20, (1 << 20) + 77, 10000000, -1, -300, -1000000})
      for (const Context& context : every_isa()) {
        const std::vector<float> got = turned_row(rope, ones, position, context);
        for (std::size_t i = 0; i < frequency.size(); ++i) {
          const long double angle = static_cast<long double>(position) * frequency[i];
          // Half a unit of the rounded number, and the rounding of an angle in f64.
          const double slack = 4e-16 * std::fabs(static_cast<double>(position));
          const auto c = static_cast<double>(std::cos(angle));
          const auto s = static_cast<double>(std::sin(angle));
          ASSERT_NEAR(got[i], c, u32 * std::fabs(c) + slack) << position << ' ' << context.isa();
          ASSERT_NEAR(got[i + 64], s, u32 * std::fabs(s) + slack) << position;
        }
      }
  }
}

TEST(Rope, IsTheFormulaForEveryDimAndRotatedPart) {
  std::uint64_t seed = 1;
  for (const RopeLayout layout : pair_layouts)
    for (const auto& [dim, rotated] : std::vector<std::pair<Index, std::optional<Index>>>{
             {2, {}},  {4, {}},  {6, {}},  {10, {}},  {14, {}},  {16, {}},  {20, {}},
             {34, {}}, {64, {}}, {80, {}}, {96, {}},  {128, {}}, {256, {}}, {7, 4},
             {65, 16}, {80, 32}, {64, 2},  {128, 64}, {33, 32},  {256, 64}}) {
      const Index channels = rotated.value_or(dim);
      const Rope rope({.dim = dim, .rotated = rotated, .layout = layout});
      const TrueRope truth{true_frequencies(10000, channels), layout};
      const Tensor x = random_tensor({2, 3, 19, dim}, seed++);
      const Doubles want =
          turned(truth, x, [](Index, Index token) { return std::vector<Index>{40 + token}; });
      for (const Context& context : every_isa()) {
        const std::string where = name(layout) + " dim " + std::to_string(dim) + " rotated " +
                                  std::to_string(channels) + " on " + context.isa();
        Tensor in_place = x.clone(), apart(x.shape());
        rope.apply(in_place, 40, context);
        rope.apply_into(apart, x, 40, context);
        EXPECT_SILENT(far_from(want, in_place, where));
        EXPECT_SILENT(different_bits("apart", apart.numbers(), in_place.numbers())) << where;
      }
    }
}

TEST(Rope, LeavesPositionZeroAndChannelsBehindThePairsAlone) {
  const Tensor x = random_tensor({1, 2, 5, 24}, 3);
  for (const RopeLayout layout : pair_layouts) {
    const Rope rope({.dim = 24, .rotated = 8, .layout = layout});
    Tensor y = x.clone();
    rope.apply(y, 12345);
    for (Index row = 0; row < 10; ++row)
      for (Index c = 8; c < 24; ++c)
        EXPECT_EQ(y.numbers()[row * 24 + c], x.numbers()[row * 24 + c]);
    y = x.clone();
    const std::vector<Index> zeros(5);
    rope.apply(y, Positions::list(zeros));
    EXPECT_SILENT(different_bits("position 0", y.numbers(), x.numbers()));
  }
}

TEST(Rope, KeepsNormsAndProductsWhenAllMoveAlong) {
  const Tensor q = random_tensor({1, 1, 40, 64}, 5), k = random_tensor({1, 1, 40, 64}, 6);
  const auto products = [&](const Rope& rope, Index first) {
    Tensor a = q.clone(), b = k.clone();
    rope.apply(a, first);
    rope.apply(b, first + 3);
    std::vector<double> sums;
    for (Index i = 0; i < 40; ++i)
      for (Index j = 0; j < 40; ++j) {
        double sum = 0;
        for (Index c = 0; c < 64; ++c)
          sum += double{a.numbers()[i * 64 + c]} * b.numbers()[j * 64 + c];
        sums.push_back(sum);
      }
    return sums;
  };
  for (const RopeLayout layout : pair_layouts) {
    const Rope rope({.dim = 64, .layout = layout});
    const std::vector<double> here = products(rope, 0);
    for (const Index first : {1, 100, 131072, 1000000, -5000}) {
      const std::vector<double> there = products(rope, first);
      for (std::size_t i = 0; i < here.size(); ++i) EXPECT_NEAR(here[i], there[i], 2e-5) << first;
    }
  }
  Tensor a = q.clone();
  Rope({.dim = 64}).apply(a, 777);
  for (Index row = 0; row < 40; ++row) {
    double before = 0, after = 0;
    for (Index c = 0; c < 64; ++c) {
      before += std::pow(q.numbers()[row * 64 + c], 2);
      after += std::pow(a.numbers()[row * 64 + c], 2);
    }
    EXPECT_NEAR(after, before, 1e-5 * before);
  }
}

TEST(Rope, ALayoutIsAPermutationOfTheOther) {
  const Index dim = 32;
  const Tensor x = random_tensor({1, 1, 9, dim}, 7);
  Tensor mixed(x.shape());
  const auto permute = [&](const Tensor& from, Tensor& to) {
    for (Index row = 0; row < 9; ++row)
      for (Index i = 0; i < dim / 2; ++i)
        for (Index s = 0; s < 2; ++s)
          to.numbers()[row * dim + s * dim / 2 + i] = from.numbers()[row * dim + 2 * i + s];
  };
  permute(x, mixed);
  Tensor near = x.clone(), want(x.shape());
  Rope({.dim = dim, .layout = RopeLayout::interleaved}).apply(near, 5);
  Rope({.dim = dim, .layout = RopeLayout::half_split}).apply(mixed, 5);
  permute(near, want);
  EXPECT_SILENT(different_bits("permuted", mixed.numbers(), want.numbers()));
}

TEST(Rope, ProportionalPairsRotateAsInAFullRopeOrNotAtAll) {
  const Rope part({.dim = 32, .rotated = 8, .proportional = true});
  TrueRope truth{true_frequencies(10000, 32)};
  for (std::size_t i = 4; i < 16; ++i) truth.frequency[i] = 0;
  const Tensor x = random_tensor({1, 2, 6, 32}, 8);
  Tensor y = x.clone();
  part.apply(y, 90);
  EXPECT_SILENT(
      far_from(turned(truth, x, [](Index, Index token) { return std::vector<Index>{90 + token}; }),
               y, "proportional"));
}

/// The slope of sum(dy * y) in every number of x, by central differences of the formula.
void expect_gradient(const Rope& rope, const TrueRope& truth, const std::string& where) {
  const Index dim = rope.options().dim;
  const Tensor x = random_tensor({1, 1, 3, dim}, 9), dy = random_tensor({1, 1, 3, dim}, 10);
  const auto loss = [&](Index token, const Doubles& row) {
    const Doubles y = truth.turned(row, {50 + token});
    double sum = 0;
    for (Index c = 0; c < dim; ++c)
      sum +=
          y[static_cast<std::size_t>(c)] * dy.numbers()[static_cast<std::size_t>(token * dim + c)];
    return sum;
  };
  for (const Context& context : every_isa()) {
    Tensor dx = dy.clone(), apart(dy.shape());
    rope.apply_backward(dx, 50, context);
    rope.apply_backward_into(apart, dy, 50, context);
    EXPECT_SILENT(different_bits("apart", apart.numbers(), dx.numbers()));
    for (Index token = 0; token < 3; ++token)
      for (Index c = 0; c < dim; ++c) {
        const float* from = x.data() + token * dim;
        Doubles row(from, from + dim);
        row[static_cast<std::size_t>(c)] += 1e-3;
        const double above = loss(token, row);
        row[static_cast<std::size_t>(c)] -= 2e-3;
        const double slope = (above - loss(token, row)) / 2e-3;
        EXPECT_NEAR(dx.numbers()[static_cast<std::size_t>(token * dim + c)], slope, 2e-6)
            << where << " on " << context.isa();
      }
  }
}

TEST(Rope, GradientsAreSlopes) {
  for (const RopeLayout layout : pair_layouts) {
    expect_gradient(Rope({.dim = 20, .layout = layout}), {true_frequencies(10000, 20), layout},
                    name(layout));
    expect_gradient(Rope({.dim = 13, .rotated = 6, .layout = layout}),
                    {true_frequencies(10000, 6), layout}, name(layout) + " partial");
    const Rope yarn({.dim = 64, .layout = layout, .scaling = YarnRope{.factor = 4}});
    TrueRope truth{{yarn.frequencies().begin(), yarn.frequencies().end()}, layout};
    truth.factor = 1 + 0.1L * std::log(4.0L);
    expect_gradient(yarn, truth, name(layout) + " YaRN");
  }
}

}  // namespace
}  // namespace rapt::test
