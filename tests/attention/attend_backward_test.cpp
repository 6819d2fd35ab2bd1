#include <gtest/gtest.h>

#include <cmath>

#include "support/cases.h"
#include "support/engine.h"
#include "support/refused.h"
#include "support/truth/bound.h"
#include "support/truth/definition.h"

namespace rapt::test {
namespace {

void expect_backward(const Case& c) {
  const Operands o(c);
  const DefinedGradients want = define_gradients(problem(o.q, o.k, o.v, o.how), doubles(o.dout));
  for (const Context& context : every_isa())
    EXPECT_WITHIN_BOUND(run(o, context).backward, want, where(c, context));
}

TEST(AttendBackward, IsWithinTheBoundOfTheDefinitionOnEveryIsa) {
  for (const Case& c : attention_cases()) expect_backward(c);
}

TEST(SlowAttendBackward, StaysWithinTheBoundUpToAMillionKeysOrQueries) {
  for (const Case& c : long_cases()) expect_backward(c);
}

TEST(AttendBackward, GivesOnlyTheGradientsTheCallHasPartsFor) {
  Small small({2, 2, 5, 8}, {2, 1, 9, 8});
  const Gradients plain = small.answer().backward;
  EXPECT_EQ(plain.dq.shape(), small.q.shape());
  EXPECT_EQ(plain.dk.shape(), small.k.shape());
  EXPECT_EQ(plain.dv.shape(), small.v.shape());
  EXPECT_TRUE(plain.dslopes.empty() && plain.dkerple.empty() && plain.dtable.empty() &&
              plain.drelative_keys.empty());
  EXPECT_TRUE(plain.ddense.empty() && plain.dsinks.empty() && plain.drelative_values.empty());
  const Tensor table = random_tensor({32, 2}, 1), shaw = random_tensor({7, 8}, 2);
  const Tensor dense = random_tensor({1, 2, 1, 9}, 3);
  small.how.bias = alibi(2) + kerple_log({1, 2}, {1, 2}) + t5_bias(table) + relative_keys(shaw) +
                   dense_bias(dense);
  small.how.relative_values = shaw;
  small.how.sinks = {0.5f, -1};
  const Gradients all = small.answer().backward;
  EXPECT_EQ(all.dslopes.shape(), Shape{2});
  EXPECT_EQ(all.dkerple.shape(), (Shape{2, 2}));
  EXPECT_EQ(all.dtable.shape(), table.shape());
  EXPECT_EQ(all.drelative_keys.shape(), shaw.shape());
  EXPECT_EQ(all.drelative_values.shape(), shaw.shape());
  EXPECT_EQ(all.ddense.shape(), dense.shape());
  EXPECT_EQ(all.dsinks.shape(), Shape{2});
}

TEST(AttendBackward, LeavesOutTheGradientOfAFixedDenseBias) {
  Small small({1, 2, 66, 8}, {1, 2, 90, 8});
  const Tensor dense = random_tensor({1, 2, 66, 90}, 3);
  small.how.bias = dense_bias(dense);
  const Gradients learned = small.answer().backward;
  small.how.bias.dense->fixed = true;
  Gradients fixed = small.answer().backward;
  EXPECT_TRUE(fixed.ddense.empty());
  fixed.ddense = learned.ddense.clone();
  EXPECT_SAME_BITS(fixed, learned);
}

/// d lse / d logit is the probability: what a row's keys and its sink get adds up to what it gave.
TEST(AttendBackward, SharesTheGradientOfLseAmongTheLogits) {
  const Tensor q = random_tensor({2, 2, 70, 8}, 1), k = random_tensor({2, 2, 90, 8}, 2);
  const Tensor zeros({2, 2, 70, 8}), dense({2, 2, 70, 90}), dlse = random_tensor({2, 2, 70}, 3);
  for (const Context& context : every_isa()) {
    Attention how{.pattern = causal(), .bias = dense_bias(dense), .sinks = {0.5f, -1}};
    const Attended y = attend(q, k, k, how, context);
    const Gradients g = attend_backward({zeros, dlse}, q, k, k, y, how, context);
    std::vector<double> by_head(2, 0);
    for (Index row = 0; row < 2 * 2 * 70; ++row) {
      by_head[row / 70 % 2] += dlse.numbers()[row];
      for (Index key = 0; key < 90; ++key)
        by_head[row / 70 % 2] -= g.ddense.numbers()[row * 90 + key];
    }
    for (std::size_t head = 0; head < 2; ++head)
      EXPECT_NEAR(g.dsinks.numbers()[head], by_head[head], 1e-4);
    for (const float number : g.dv.numbers()) ASSERT_EQ(number, 0);
    expect_refused(
        [&] {
          attend_backward({zeros, zeros}, q, k, k, y, how, context);
        },
        {"dlse", "[2, 2, 70, 8]", "[2, 2, 70]"});
  }
}

double dot(std::span<const float> numbers, const std::vector<float>& direction) {
  double sum = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i) sum += double{numbers[i]} * direction[i];
  return sum;
}

double dot(const Doubles& numbers, const std::vector<float>& direction) {
  double sum = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i) sum += numbers[i] * direction[i];
  return sum;
}

double norm(const Doubles& numbers) {
  double sum = 0;
  for (const double number : numbers) sum += number * number;
  return std::sqrt(sum);
}

TEST(AttendBackward, AgreesAlongRandomDirections) {
  const Case c = parse_case(
      "heads=4; kv_heads=2; queries=97; keys=161; dim=48; value_dim=32; "
      "pattern=causal; softcap=20; bias=alibi");
  const Operands o(c);
  const DefinedGradients want = define_gradients(problem(o.q, o.k, o.v, o.how), doubles(o.dout));
  for (const Context& context : every_isa()) {
    const Gradients got = run(o, context).backward;
    const auto expect_along = [&](const Tensor& part, const Truth& truth, std::uint64_t seed) {
      const auto direction = normals(part.elements(), seed);
      EXPECT_NEAR(dot(part.numbers(), direction), dot(truth.value, direction),
                  1e-4 * norm(truth.value))
          << where(c, context);
    };
    for (std::uint64_t seed = 0; seed < 32; ++seed) {
      expect_along(got.dq, want.dq, seed);
      expect_along(got.dk, want.dk, seed);
      expect_along(got.dv, want.dv, seed);
      expect_along(got.dslopes, want.dslopes, seed);
    }
  }
}

TEST(AttendBackward, LogitGradientsOfARowAddUpToZero) {
  const Case c = parse_case(
      "batch=2; heads=2; kv_heads=2; queries=70; keys=130; dim=16; "
      "value_dim=16; pattern=causal; bias=dense");
  const Operands o(c);
  const Truth want = define_gradients(problem(o.q, o.k, o.v, o.how), doubles(o.dout)).ddense;
  for (const Context& context : every_isa()) {
    const Gradients got = run(o, context).backward;
    for (Index row = 0; row < c.batch * c.heads * c.queries; ++row) {
      double sum = 0, unit = 0;
      for (Index key = 0; key < c.keys; ++key) {
        sum += got.ddense.numbers()[row * c.keys + key];
        unit += want.unit[row * c.keys + key];
      }
      ASSERT_LE(std::fabs(sum), 2 * unit + want.floor) << "row " << row << where(c, context);
    }
  }
}

TEST(AttendBackward, IsLinearInTheUpstreamGradient) {
  Small small({1, 2, 66, 16}, {1, 1, 90, 16});
  small.how.pattern = causal();
  const Answer once = small.answer();
  for (float& number : small.dout.numbers()) number *= 0.25f;
  Answer quarter = small.answer();
  for (Tensor* part : {&quarter.backward.dq, &quarter.backward.dk, &quarter.backward.dv})
    for (float& number : part->numbers()) number *= 4;
  EXPECT_SAME_BITS(quarter.backward, once.backward);
  for (float& number : small.dout.numbers()) number = 0;
  const Gradients zero = small.answer().backward;
  for (const Tensor* part : {&zero.dq, &zero.dk, &zero.dv})
    for (const float number : part->numbers()) ASSERT_EQ(number, 0);
}

}  // namespace
}  // namespace rapt::test
