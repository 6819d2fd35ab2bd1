#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "support/cases.h"
#include "support/engine.h"
#include "support/truth/bound.h"
#include "support/truth/definition.h"

namespace rapt::test {
namespace {

void expect_within_bound(const Case& c) { EXPECT_WITHIN_BOUND(Operands(c), c.repro()); }

Case score_case(const std::string& changes) {
  return parse_case(
      "batch=2; heads=4; kv_heads=2; queries=37; keys=83; dim=20; value_dim=12; "
      "pattern=causal; " +
      changes);
}

TEST(Score, EveryScaleIsWithinTheBound) {
  for (const char* scale : {"sqrt", "dim", "log_n", "1", "0", "-0.3", "0.01"})
    for (const char* pattern : {"causal", "window(9, 4)", "random(0.1)"})
      expect_within_bound(score_case("scale=" + std::string(scale) + "; pattern=" + pattern));
}

TEST(Score, EveryBiasIsWithinTheBound) {
  for (const std::string& bias : biases())
    for (const char* pattern : {"full", "causal", "random(0.5)"})
      expect_within_bound(score_case("bias=" + bias + "; pattern=" + pattern));
}

TEST(Score, PartsWorkTogether) {
  std::uint64_t seed = 1;
  for (const char* softcap : {"0", "3", "50"})
    for (const char* bias : {"none", "alibi+t5+shaw+dense", "t5_past+dense_inf", "shaw", "shaw_far",
                             "shaw+shaw_values", "shaw_values_far+dense_inf"})
      for (const char* sinks : {"0", "1"})
        for (const char* dropout : {"0", "0.3"})
          for (const char* kv_heads : {"1", "4"})
            expect_within_bound(
                score_case("softcap=" + std::string(softcap) + "; bias=" + bias +
                           "; sinks=" + sinks + "; dropout=" + dropout + "; kv_heads=" + kv_heads +
                           "; queries=19; keys=70; dim=9" + "; seed=" + std::to_string(seed++)));
}

TEST(Score, RelativeKeysAreWithinTheBoundAtAnyAlignmentAndReach) {
  // A tile of pairs meets two table tiles whose borders move with keys - queries.
  std::uint64_t seed = 1;
  for (const Index reach : {0, 1, 31, 64, 150, 400})
    for (const Index keys : {70, 128, 193, 300})
      for (const char* pattern : {"full", "causal", "window(20, 90) | tokens({0})"}) {
        const Index queries = 130 + static_cast<Index>(seed % 3);
        Small small({1, 2, queries, 8}, {1, 1, keys, 8}, seed++);
        const Tensor table = random_tensor({2 * reach + 1, 8}, seed);
        const Tensor values = random_tensor({2 * reach + 1, 8}, seed + 1000);
        small.how.pattern = Pattern::parse(pattern);
        small.how.bias = relative_keys(table);
        small.how.relative_values = values;
        EXPECT_WITHIN_BOUND(small, "reach " + std::to_string(reach) + ", " + std::to_string(keys) +
                                       " keys, " + pattern);
      }
}

TEST(Score, ADistanceOfAMillionKeepsItsBias) {
  // bf16 or f32 rounding of slope * key loses the difference between neighbours; -slope * distance
  // near the query does not.
  const Index keys = 1 << 20;
  Small small({1, 1, 2, 1}, {1, 1, keys, 1});
  for (float& number : small.q.numbers()) number = 0;
  small.how.pattern = causal() & window(64, 0);
  small.how.bias = alibi(std::vector<float>{0.25f});
  const Defined want = define(problem(small.q, small.k, small.v, small.how));
  for (const Context& context : every_isa()) {
    const Attended got = attend(small.q, small.k, small.v, small.how, context);
    EXPECT_WITHIN_BOUND(got, want, context.isa());
    for (std::size_t row = 0; row < 2; ++row)  // S holds the distances; here they are small
      EXPECT_NEAR(got.out.numbers()[row], want.out.value[row], 1e-6) << context.isa();
  }
}

TEST(Score, AlibiSlopesAreThePublishedOnes) {
  const auto slopes = [](Index heads) { return alibi(heads).alibi.value().slopes; };
  for (const Index heads : {1, 2, 4, 8, 16, 64, 128})
    for (Index head = 0; head < heads; ++head)
      EXPECT_FLOAT_EQ(slopes(heads)[head],
                      static_cast<float>(std::exp2(-8.0 * static_cast<double>(head + 1) /
                                                   static_cast<double>(heads))));
  const float after_8[] = {0.70710678f, 0.35355339f, 0.17677670f, 0.08838835f};
  const float after_16[] = {0.84089642f, 0.59460356f, 0.42044821f, 0.29730178f};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_FLOAT_EQ(slopes(12)[8 + i], after_8[i]);
    EXPECT_FLOAT_EQ(slopes(20)[16 + i], after_16[i]);
  }
  for (Index heads = 1; heads <= 128; ++heads)
    EXPECT_EQ(slopes(heads).size(), static_cast<std::size_t>(heads));
}

TEST(Score, KerpleHasTheParametersOfItsFormulas) {
  // One query at position 2 that scores nothing itself: probabilities are those of the bias.
  Small small({1, 1, 1, 1}, {1, 1, 3, 1});
  for (float& number : small.q.numbers()) number = 0;
  const auto out = [&](const Bias& bias) {
    small.how.bias = bias;
    return double{attend(small.q, small.k, small.v, small.how).out.numbers()[0]};
  };
  const auto mean = [&](const std::function<double(double)>& weight) {
    double sum = 0, weights = 0;
    for (std::size_t key = 0; key < 3; ++key) {
      const double w = weight(2 - static_cast<double>(key));
      sum += w * small.v.numbers()[key], weights += w;
    }
    return sum / weights;
  };
  EXPECT_NEAR(out(kerple_log({1.5f}, {0.5f})),
              mean([](double far) { return std::pow(1 + 0.5 * far, -1.5); }), 1e-6);
  EXPECT_NEAR(out(kerple_power({1.5f}, {0.5f})),
              mean([](double far) { return std::exp(-1.5 * std::sqrt(far)); }), 1e-6);
  EXPECT_NEAR(out(kerple_power({0.25f}, {1.0f})), out(alibi(std::vector<float>{0.25f})), 1e-6);
}

TEST(Score, T5BucketsBeginWhereTheModelsBeginThem) {
  using enum RelativeTable::Direction;
  const Index both_first[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91};
  const Index past_first[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                              16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113};
  const auto bucket_of = [](std::span<const Index> first, Index distance) {
    Index bucket = std::ssize(first) - 1;
    while (first[static_cast<std::size_t>(bucket)] > distance) --bucket;
    return bucket;
  };
  for (Index distance = 0; distance <= 300; ++distance) {
    EXPECT_EQ(t5_bucket(-distance, 32, 128, both), bucket_of(both_first, distance));
    EXPECT_EQ(t5_bucket(-distance, 32, 128, past), bucket_of(past_first, distance));
    if (distance == 0) continue;
    EXPECT_EQ(t5_bucket(distance, 32, 128, both), 16 + bucket_of(both_first, distance));
    EXPECT_EQ(t5_bucket(distance, 32, 128, past), 0);
  }
  EXPECT_EQ(t5_bucket(Index{1} << 40, 32, 128, both), 31);
}

TEST(Score, ASinkIsASigmoidOfTheLse) {
  Small small({1, 3, 20, 16}, {1, 3, 50, 16});
  const Attended without = attend(small.q, small.k, small.v);
  small.how.sinks = {0.7f, 4, -200};
  const Attended with = attend(small.q, small.k, small.v, small.how);
  for (std::size_t row = 0; row < 60; ++row) {
    const double sink = small.how.sinks[row / 20], lse = without.lse.numbers()[row];
    for (std::size_t t = 0; t < 16; ++t)
      EXPECT_NEAR(with.out.numbers()[row * 16 + t],
                  without.out.numbers()[row * 16 + t] / (1 + std::exp(sink - lse)), 2e-6);
    EXPECT_NEAR(with.lse.numbers()[row],
                std::max(sink, lse) + std::log1p(std::exp(-std::fabs(sink - lse))), 2e-6);
  }
}

TEST(Score, LogNIsTheSquareRootRuleAt512Keys) {
  Small small({1, 1, 3, 64}, {1, 1, 512, 64});
  const Attended plain = attend(small.q, small.k, small.v);
  small.how.scale = Scale::log_n();
  const Attended log_n = attend(small.q, small.k, small.v, small.how);
  for (std::size_t i = 0; i < plain.out.numbers().size(); ++i)
    EXPECT_NEAR(log_n.out.numbers()[i], plain.out.numbers()[i], 1e-6);
}

TEST(Score, BiasPartsJoinOncePerKind) {
  const Tensor table = random_tensor({32, 4}, 1);
  const Bias both = alibi(4) + t5_bias(table);
  EXPECT_TRUE(both.alibi && both.table && !both.keys && !both.dense);
  EXPECT_THROW(alibi(4) + alibi(4), std::invalid_argument);
  EXPECT_THROW(both + t5_bias(table), std::invalid_argument);
}

TEST(Score, EveryBroadcastOfADenseBiasIsItsRepetition) {
  const Shape full{2, 3, 5, 70};
  for (unsigned repeated = 0; repeated < 16; ++repeated) {
    Shape shape = full;
    for (Index axis = 0; axis < 4; ++axis)
      if (repeated >> axis & 1) shape[axis] = 1;
    const Tensor bias = random_tensor(shape, repeated);
    Small small({2, 3, 5, 8}, {2, 3, 70, 8});
    small.how.bias = dense_bias(bias);
    const Problem p = problem(small.q, small.k, small.v, small.how);
    const Answer got = small.answer();
    EXPECT_WITHIN_BOUND(got.forward, define(p), to_string(shape));
    EXPECT_WITHIN_BOUND(got.backward, define_gradients(p, doubles(small.dout)), to_string(shape));
    EXPECT_EQ(got.backward.ddense.shape(), shape);
    Shape strides = shape.row_major();  // the same by strides of 0
    for (Index axis = 0; axis < 4; ++axis)
      if (repeated >> axis & 1 && axis < 3) strides[axis] = 0, shape[axis] = full[axis];
    small.how.bias = dense_bias(View::unchecked(bias.data(), shape, strides));
    EXPECT_SAME_BITS(attend(small.q, small.k, small.v, small.how), got.forward);
  }
}

}  // namespace
}  // namespace rapt::test
