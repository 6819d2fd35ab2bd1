#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>

#include "support/engine.h"
#include "support/truth/bound.h"
#include "support/truth/definition.h"

// The second half of numerics.md 1.5: numbers at the ends of f32, and options at the ends of their
// range.
namespace rapt::test {
namespace {

TEST(ExtremeValues, ARowWhoseLogitsAreAllMinusInfinityIsNotARowThatSeesNothing) {
  for (const Context& context : every_isa()) {
    Small small({1, 1, 5, 8}, {1, 1, 5, 8});
    small.how.pattern = window(0, 0);
    for (Index c = 0; c < 8; ++c) at(small.q, 0, 0, 2, c) = 1e25f, at(small.k, 0, 0, 2, c) = -1e25f;
    const Answer got = small.answer(context);
    for (Index row = 0; row < 5; ++row) {
      EXPECT_EQ(std::isnan(got.forward.out.numbers()[row * 8]), row == 2) << context.isa();
      EXPECT_EQ(std::isnan(got.forward.lse.numbers()[row]), row == 2) << context.isa();
      EXPECT_EQ(std::isnan(got.backward.dv.numbers()[row * 8]), row == 2) << context.isa();
    }
    small.how.sinks = {0.5f};  // the sink takes it all
    const Answer sunk = small.answer(context);
    EXPECT_EQ(sunk.forward.out.numbers()[2 * 8], 0) << context.isa();
    EXPECT_NEAR(sunk.forward.lse.numbers()[2], 0.5, 1e-6) << context.isa();
    EXPECT_EQ(sunk.backward.dv.numbers()[2 * 8], 0) << context.isa();
  }
}

TEST(ExtremeValues, ALogitThatOverflowsMakesItsRowNanAndNoOther) {
  for (const Context& context : every_isa()) {
    Small small({1, 1, 70, 8}, {1, 1, 90, 8});
    for (Index t = 0; t < 8; ++t) at(small.q, 0, 0, 5, t) = at(small.k, 0, 0, 70, t) = 3e38f;
    for (Index row = 0; row < 70; ++row)
      if (row != 5)
        for (Index t = 0; t < 8; ++t) at(small.q, 0, 0, row, t) = 0;  // 0 * 3e38: a logit of 0
    const Attended got = attend(small.q, small.k, small.v, {}, context);
    for (Index row = 0; row < 70; ++row)
      for (Index t = 0; t < 8; ++t)
        ASSERT_EQ(std::isnan(got.out.numbers()[row * 8 + t]), row == 5)
            << "row " << row << " on " << context.isa();
  }
}

TEST(ExtremeValues, AnOverflowBelowIsAKeyWithoutWeight) {
  for (const Context& context : every_isa()) {
    Small small({1, 1, 3, 4}, {1, 1, 80, 4});
    for (float& number : small.q.numbers()) number = 1e20f;
    for (float& number : small.k.numbers()) number = -1e20f;
    for (Index t = 0; t < 4; ++t) at(small.k, 0, 0, 66, t) = 0;
    const Attended got = attend(small.q, small.k, small.v, {}, context);
    for (Index i = 0; i < 12; ++i)
      EXPECT_EQ(got.out.numbers()[i], at(small.v, 0, 0, 66, i % 4)) << context.isa();
  }
}

TEST(ExtremeValues, ADominantKeyGivesItsValue) {
  for (const float size : {1e4f, 1e20f, 1.5e38f})
    for (const Index best : {0, 5, 64, 99})
      for (const Context& context : every_isa()) {
        Small small({1, 1, 2, 1}, {1, 1, 100, 1});
        small.how.scale = Scale::none();
        for (float& number : small.q.numbers()) number = 1;
        for (Index key = 0; key < 100; ++key)
          at(small.k, 0, 0, key, 0) = key == best ? size : -size;
        const Attended got = attend(small.q, small.k, small.v, small.how, context);
        const float value = at(small.v, 0, 0, best, 0);
        for (const float number : got.out.numbers())
          EXPECT_NEAR(number, value, std::fabs(value) * FLT_EPSILON) << size << context.isa();
        for (const float lse : got.lse.numbers()) EXPECT_NEAR(lse, size, size * 1e-6f);
      }
}

TEST(ExtremeValues, LargeLogitsStayWithinTheBound) {
  for (const float size : {30.0f, 1e3f, 1e4f}) {
    Small small({1, 2, 40, 16}, {1, 2, 90, 16});
    for (float& number : small.q.numbers()) number *= size;
    EXPECT_WITHIN_BOUND(small, "q times " + std::to_string(size));
  }
}

void expect_mean_of_equal_logits(Index keys) {
  Small small({1, 1, 2, 16}, {1, 1, keys, 16});
  for (float& number : small.k.numbers()) number = 0.125f;
  for (float& number : small.v.numbers()) number = std::fabs(number) + 1;
  EXPECT_WITHIN_BOUND(small, "equal logits, keys " + std::to_string(keys));
}

TEST(ExtremeValues, EqualLogitsGiveTheMeanOfTheValues) {
  for (const Index keys : {2, 64, 65, 1000, 16384}) expect_mean_of_equal_logits(keys);
}

TEST(SlowExtremeValues, EqualLogitsGiveTheMeanOfAMillionValues) {
  expect_mean_of_equal_logits(1 << 20);
}

TEST(ExtremeValues, SubnormalNumbersAreWithinTheFloor) {
  for (Tensor Small::*operand : {&Small::q, &Small::k, &Small::v, &Small::dout}) {
    Small small({1, 1, 20, 16}, {1, 1, 70, 16});
    for (float& number : (small.*operand).numbers()) number *= 1e-40f;
    EXPECT_WITHIN_BOUND(small, "subnormal operand");
  }
  Small spread({1, 1, 4, 1}, {1, 1, 70, 1});  // probabilities down to e^-103
  spread.how.scale = Scale::none();
  for (float& number : spread.q.numbers()) number = 1;
  for (Index key = 0; key < 70; ++key) at(spread.k, 0, 0, key, 0) = -1.6f * static_cast<float>(key);
  EXPECT_WITHIN_BOUND(spread, "subnormal probabilities");
}

TEST(ExtremeValues, MinusZeroIsZero) {
  Small small({1, 1, 9, 8}, {1, 1, 70, 8});
  for (Index key = 0; key < 70; key += 3)
    for (Index t = 0; t < 8; ++t) at(small.k, 0, 0, key, t) = at(small.v, 0, 0, key, t) = 0;
  const Answer plus = small.answer();
  for (Index key = 0; key < 70; key += 3)
    for (Index t = 0; t < 8; ++t) at(small.k, 0, 0, key, t) = at(small.v, 0, 0, key, t) = -0.0f;
  const Answer minus = small.answer();
  for (std::size_t i = 0; i < 72; ++i) {
    EXPECT_EQ(plus.forward.out.numbers()[i], minus.forward.out.numbers()[i]);
    EXPECT_EQ(plus.backward.dq.numbers()[i], minus.backward.dq.numbers()[i]);
  }
}

TEST(ExtremeValues, ZeroDropoutIsNoDropout) {
  Small small({2, 2, 33, 16}, {2, 1, 90, 16});
  const Answer without = small.answer();
  small.how.dropout = {0, 12345};
  const Answer with = small.answer();
  EXPECT_SAME_BITS(with.forward, without.forward);
  EXPECT_SAME_BITS(with.backward, without.backward);
}

TEST(ExtremeValues, DropoutOfOneGivesZeros) {
  for (const Context& context : every_isa()) {
    Small small({2, 2, 33, 16}, {2, 1, 90, 16});
    const Attended without = attend(small.q, small.k, small.v, {}, context);
    small.how.dropout = {1, 7};
    const Answer got = small.answer(context);
    EXPECT_SAME_BITS("lse", got.forward.lse.numbers(), without.lse.numbers());
    for (const float number : got.forward.out.numbers()) ASSERT_EQ(number, 0) << context.isa();
    for (const Tensor* part : {&got.backward.dq, &got.backward.dk, &got.backward.dv})
      for (const float number : part->numbers()) ASSERT_EQ(number, 0) << context.isa();
  }
}

TEST(ExtremeValues, AnyDropoutRateIsWithinTheBound) {
  for (const double rate : {1e-12, 1e-3, 0.5, 0.99, 1 - 0x1p-20}) {
    Small small({2, 2, 33, 16}, {2, 1, 90, 16});
    small.how.dropout = {rate, 0xfedcba9876543210};
    EXPECT_WITHIN_BOUND(small, "dropout " + std::to_string(rate));
  }
}

TEST(ExtremeValues, DropoutDoesNotChangeTheDenominator) {
  Small small({1, 2, 33, 16}, {1, 2, 90, 16});
  const Attended without = attend(small.q, small.k, small.v);
  small.how.dropout = {0.5, 3};
  const Attended with = attend(small.q, small.k, small.v, small.how);
  EXPECT_SAME_BITS("lse", with.lse.numbers(), without.lse.numbers());
}

TEST(ExtremeValues, AScaleOfZeroIsUniform) {
  Small small({1, 1, 5, 8}, {1, 1, 70, 8});
  small.how.scale = Scale::value(0);
  EXPECT_WITHIN_BOUND(small, "scale 0");
  EXPECT_NEAR(attend(small.q, small.k, small.v, small.how).lse.numbers()[0], std::log(70.0), 1e-6);
}

TEST(ExtremeValues, AVeryNegativeBiasStillOrdersItsKeys) {
  // exp2 arguments far below the smallest exponent of f32 must give 0, not wrap around.
  Small small({1, 1, 3, 8}, {1, 1, 200, 8});
  Tensor bias({1, 1, 1, 200});
  for (Index key = 0; key < 200; ++key)
    bias.numbers()[key] = key == 150 ? 0 : -std::exp2(static_cast<float>(key % 127));
  small.how.bias = dense_bias(bias);
  for (const Context& context : every_isa()) {
    const Attended got = attend(small.q, small.k, small.v, small.how, context);
    for (const float number : got.out.numbers()) EXPECT_TRUE(std::isfinite(number));
    EXPECT_WITHIN_BOUND(got, define(problem(small.q, small.k, small.v, small.how)), context.isa());
  }
  for (float& number : bias.numbers()) number = number == 0 ? 0 : -200;
  EXPECT_WITHIN_BOUND(small, "one key 200 above the rest");
}

}  // namespace
}  // namespace rapt::test
