#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "rapt/rope.h"
#include "support/engine.h"
#include "support/refused.h"
#include "support/special_values.h"

// Wrong calls: one clear error that names what was given and what was expected, and nothing
// written.
namespace rapt::test {
namespace {

void expect_options_refused(const RopeOptions& options, const std::vector<std::string>& words) {
  expect_refused([&] { Rope rope(options); }, words);
}

TEST(RopeRefuses, OptionsThatMakeNoSense) {
  expect_options_refused({.dim = 0}, {"rope", "dim", "0"});
  expect_options_refused({.dim = 7}, {"rope", "7", "even"});
  expect_options_refused({.dim = 8, .rotated = 10}, {"rope", "10", "8", "at most"});
  expect_options_refused({.dim = 8, .rotated = 3}, {"rope", "3", "even"});
  expect_options_refused({.dim = 8, .rotated = -2}, {"rope", "-2"});
  expect_options_refused({.dim = 8, .rotated = 0}, {"rope", "0 rotated"});
  for (const double base : std::initializer_list<double>{0.0, -5.0, 1.0, infinity, nan})
    expect_options_refused({.base = base}, {"rope", "base", "above 1"});
  EXPECT_NO_THROW(Rope({.base = 1e308}));
}

TEST(RopeRefuses, ScalingsThatMakeNoSense) {
  const auto refused = [](RopeScaling scaling, const std::vector<std::string>& words) {
    expect_options_refused({.dim = 8, .scaling = std::move(scaling)}, words);
  };
  for (const double factor : std::initializer_list<double>{0.0, -1.0, infinity, nan}) {
    refused(LinearRope{factor}, {"rope", "linear factor", "above 0"});
    refused(NtkRope{factor}, {"rope", "NTK factor", "above 0"});
    refused(DynamicNtkRope{factor}, {"rope", "dynamic NTK factor"});
    refused(YarnRope{.factor = factor}, {"rope", "YaRN factor"});
    refused(Llama3Rope{.factor = factor}, {"rope", "Llama 3 factor"});
    refused(YarnRope{.attention_factor = factor}, {"rope", "attention_factor"});
  }
  refused(DynamicNtkRope{2, 0}, {"rope", "trained_tokens", "0"});
  refused(YarnRope{.fast = 1, .slow = 32}, {"rope", "fast", "1", "32"});
  refused(YarnRope{.mscale = -1}, {"rope", "mscale", "-1"});
  refused(Llama3Rope{.low = 4, .high = 4}, {"rope", "high", "4"});
  refused(LongRope{}, {"rope", "0", "short_factors", "4 pairs"});
  refused(LongRope{.short_factors = {1, 1, 1, 1}, .long_factors = {1, 1, 1, 1, 1}},
          {"rope", "5", "long_factors", "4 pairs"});
  refused(LongRope{.short_factors = {1, 1, 0, 1}, .long_factors = {1, 1, 1, 1}},
          {"rope", "short_factors", "above 0"});
  expect_options_refused({.dim = 2, .scaling = NtkRope{2}}, {"rope", "NTK", "2", "at least 4"});
}

TEST(RopeRefuses, SectionsAndXPosThatMakeNoSense) {
  expect_options_refused({.dim = 8, .sections = {.pairs = {1, 2}}}, {"rope", "3", "4"});
  expect_options_refused({.dim = 8, .sections = {.pairs = {5, -1}}}, {"rope", "5"});
  expect_options_refused(
      {.dim = 8, .scaling = LinearRope{2}, .sections = {{2, 2}, RopeSections::Order::restarted}},
      {"rope", "restarted", "scaling"});
  expect_options_refused({.dim = 8, .sections = {.pairs = {2, 2}}, .xpos = XPos{}},
                         {"rope", "xPos", "sections"});
  expect_options_refused({.xpos = XPos{.scale_base = 0}}, {"rope", "scale_base", "0"});
  const Rope xpos({.dim = 8, .xpos = XPos{}});
  Tensor x({1, 1, 2, 8});
  expect_refused([&] { xpos.apply(x); }, {"rope", "for_queries()", "for_keys()"});
  expect_refused([&] { xpos.for_keys().apply(x, 100000); }, {"rope", "100000", "center", "f32"});
  expect_refused([&] { Rope({}).for_length(-1); }, {"rope", "-1"});
}

TEST(RopeRefuses, OperandsThatDoNotFitAndWritesNothing) {
  const Rope rope({.dim = 8});
  Tensor x = random_tensor({2, 3, 4, 8}, 1);
  const Tensor before = x.clone();
  const auto refused = [&](const auto& call, const std::vector<std::string>& words) {
    expect_refused(call, words);
    for (std::size_t i = 0; i < x.numbers().size(); ++i)
      ASSERT_EQ(x.numbers()[i], before.numbers()[i]);
  };
  Tensor wide({2, 3, 4, 10}), flat({4, 8}), other({2, 3, 5, 8});
  refused([&] { rope.apply(wide); }, {"rope", "10", "8"});
  refused([&] { rope.apply(flat); }, {"rope", "[4, 8]", "[batch, heads, tokens, dim]"});
  refused([&] { rope.apply_into(x, other); }, {"rope", "out", "[2, 3, 4, 8]", "[2, 3, 5, 8]"});
  refused([&] { rope.apply_into(x, x); }, {"rope", "overlaps"});
  const auto view = [&](Shape shape, Shape strides) {
    return MutableView::unchecked(x.data(), shape, strides);
  };
  refused([&] { rope.apply(view({2, 3, 4, 8}, {0, 32, 8, 1})); }, {"rope", "x", "share memory"});
  refused(
      [&] {
        rope.apply(view({1, 1, 2, 8}, {1, 1, 1, 2}));
      },
      {"rope", "stride 2", "contiguous"});
  refused(
      [&] {
        rope.apply(MutableView::unchecked(nullptr, {1, 1, 1, 8}, {8, 8, 8, 1}));
      },
      {"rope", "null"});
  const std::vector<Index> numbers(9);
  refused([&] { rope.apply(x, Positions::list(numbers)); }, {"rope", "9", "4", "8"});
  refused([&] { rope.apply(x, Positions::from(numbers)); }, {"rope", "9", "2 items"});
  refused([&] { rope.apply(x, Positions::grid(std::span(numbers).first(8), 2)); },
          {"rope", "2 axes", "sections"});
  refused([&] { rope.apply(x, Positions::grid(numbers, 0)); }, {"rope", "0 axes"});
  for (const Index far : {Index{1} << 41, -(Index{1} << 41), std::numeric_limits<Index>::max(),
                          std::numeric_limits<Index>::min()})
    refused([&] { rope.apply(x, far); }, {"rope", std::to_string(far), "2^40"});
  refused([&] { rope.apply(x, Index{1} << 40); }, {"rope", "2^40"});
}

TEST(RopeRefuses, ShiftsThatCannotBe) {
  Tensor x({1, 1, 2, 8});
  const Rope dynamic({.dim = 8, .scaling = DynamicNtkRope{2}});
  expect_refused([&] { dynamic.shift(x, 1); }, {"rope shift", "dynamic NTK"});
  expect_refused([&] { Rope({.dim = 10}).shift(x, 1); }, {"rope shift", "8", "10"});
}

TEST(PositionsRefuse, TablesAndPositionsThatDoNotFit) {
  const std::vector<Index> none;
  expect_refused([&] { sinusoidal({.dim = 0}, none); }, {"sinusoidal", "dim", "0"});
  expect_refused([&] { sinusoidal({.base = 1}, none); }, {"sinusoidal", "base", "1"});
  expect_refused([&] { sinusoidal({}, 0, -1); }, {"sinusoidal", "-1"});
  const Tensor table({6, 3}), dout({1, 4, 3}), cube({2, 2, 2});
  expect_refused([&] { learned_positions(cube, {1, 1}); }, {"learned", "[2, 2, 2]"});
  expect_refused([&] { learned_positions(table, {1, 7}); }, {"learned", "0 to 6", "0 to 5"});
  expect_refused([&] { learned_positions(table, {1, 1}, -1); }, {"learned", "-1"});
  expect_refused([&] { learned_positions(table, {1, 4}, 0, 3); }, {"learned", "offset 3"});
  expect_refused([&] { learned_positions(table, {-1, 4}); }, {"learned", "-1"});
  expect_refused([&] { learned_positions_backward(dout, 3); }, {"learned", "0 to 3", "0 to 2"});
  expect_refused([&] { learned_positions_backward(table, 3); }, {"learned", "[6, 3]"});
  expect_refused([&] { learned_positions_backward(dout, -1); }, {"learned", "-1"});
  const std::vector<Index> grid(2);
  expect_refused(
      [&] {
        learned_positions(table, {1, 1}, Positions::grid(grid, 2));
      },
      {"learned", "2 axes"});
  const Axial axial{table, table};
  expect_refused([&] { axial_positions(axial, {1, 37}); }, {"axial", "0 to 36", "0 to 35"});
  expect_refused([&] { axial_positions_backward(dout, axial); }, {"axial", "3", "6"});
  expect_refused([&] { axial_positions({cube, table}, {1, 1}); }, {"axial", "[2, 2, 2]"});
  EXPECT_EQ(learned_positions(table, {0, 5}, 100).shape(), (Shape{0, 5, 3}));
}

}  // namespace
}  // namespace rapt::test
