#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "rapt/rope.h"

// Published numbers of every scaling, and the formulas written out once more.
namespace rapt::test {
namespace {

Rope rope_of(Index dim, double base, RopeScaling scaling) {
  return Rope({.dim = dim, .base = base, .scaling = std::move(scaling)});
}

double plain(double base, Index dim, std::size_t pair) {
  return std::pow(base, -2 * static_cast<double>(pair) / static_cast<double>(dim));
}

/// The base that a list of frequencies base^(-2i / dim) has.
double base_of(const Rope& rope) {
  const auto dim = static_cast<double>(rope.options().dim);
  return std::pow(rope.frequencies()[1], -dim / 2);
}

void expect_relative(double got, double want, double part) {
  EXPECT_NEAR(got, want, part * std::fabs(want));
}

TEST(RopeScaling, LinearDividesEveryFrequency) {
  const Rope rope = rope_of(64, 10000, LinearRope{8});
  for (std::size_t i = 0; i < 32; ++i)
    EXPECT_DOUBLE_EQ(rope.frequencies()[i], plain(10000, 64, i) / 8);
  EXPECT_EQ(rope.attention_factor(), 1);
}

TEST(RopeScaling, NtkHasThePublishedBases) {
  expect_relative(base_of(rope_of(128, 10000, NtkRope{2})), 20221.2617, 1e-8);
  expect_relative(base_of(rope_of(128, 10000, NtkRope{4})), 40889.9424, 1e-8);
  const Rope rope = rope_of(128, 10000, NtkRope{8});
  expect_relative(base_of(rope), 82684.6226, 1e-8);
  EXPECT_DOUBLE_EQ(rope.frequencies()[0], 1);
  expect_relative(rope.frequencies()[63], plain(10000, 128, 63) / 8, 1e-13);
}

TEST(RopeScaling, DynamicNtkGrowsWithTheLengthAsPublished) {
  const Rope rope = rope_of(128, 10000, DynamicNtkRope{2, 2048});
  expect_relative(base_of(rope), 10000, 1e-12);
  expect_relative(base_of(rope.for_length(2048)), 10000, 1e-12);
  expect_relative(base_of(rope.for_length(4096)), 30527.7367, 1e-8);
  expect_relative(base_of(rope.for_length(8192)), 72195.8601, 1e-8);
  EXPECT_EQ(rope.for_length(8192).frequencies()[5],
            rope.for_length(100).for_length(8192).frequencies()[5]);
}

TEST(RopeScaling, YarnOfLlama2HasThePublishedNumbers) {
  const Rope rope = rope_of(128, 10000, YarnRope{.factor = 4, .trained_tokens = 4096});
  expect_relative(rope.frequencies()[32], 0.00653846, 1e-6);
  expect_relative(rope.frequencies()[63], 2.886955e-5, 1e-6);
  EXPECT_NEAR(rope.attention_factor(), 1.1386294, 5e-8);
  EXPECT_NEAR(std::pow(rope.attention_factor(), 2), 1.2964770, 5e-8);
  for (std::size_t i = 0; i <= 20; ++i)  // the ramp begins behind pair 20 ...
    EXPECT_DOUBLE_EQ(rope.frequencies()[i], plain(10000, 128, i));
  EXPECT_LT(rope.frequencies()[21], 0.999 * plain(10000, 128, 21));
  for (std::size_t i = 46; i < 64; ++i)  // ... and ends at pair 46
    expect_relative(rope.frequencies()[i], plain(10000, 128, i) / 4, 1e-14);
  EXPECT_GT(rope.frequencies()[45], 1.001 * plain(10000, 128, 45) / 4);
  EXPECT_NEAR(rope_of(128, 10000, YarnRope{.factor = 16}).attention_factor(), 1.2772589, 5e-8);
}

/// First pair that is interpolated at all, and first that is interpolated in full.
std::pair<std::size_t, std::size_t> ramp(const Rope& rope, double factor) {
  std::size_t low = 0, high = 0;
  const auto ratio = [&](std::size_t i) {
    return rope.frequencies()[i] / plain(rope.options().base, rope.options().dim, i);
  };
  while (ratio(low) > 1 - 1e-12) ++low;
  while (ratio(high) > (1 + 1e-12) / factor) ++high;
  return {low - 1, high};
}

TEST(RopeScaling, YarnRampsBeginAndEndAsPublished) {
  EXPECT_EQ(ramp(rope_of(128, 10000, YarnRope{.factor = 4, .trained_tokens = 4096}), 4),
            std::pair(std::size_t{20}, std::size_t{46}));
  EXPECT_EQ(ramp(rope_of(128, 1e6, YarnRope{.factor = 4, .trained_tokens = 32768}), 4),
            std::pair(std::size_t{23}, std::size_t{40}));
  EXPECT_EQ(ramp(rope_of(64, 10000, YarnRope{.factor = 40, .trained_tokens = 4096}), 40),
            std::pair(std::size_t{10}, std::size_t{23}));
}

TEST(RopeScaling, YarnOfGptOssDoesNotTruncate) {
  const Rope rope =
      rope_of(64, 150000, YarnRope{.factor = 32, .trained_tokens = 4096, .truncate = false});
  EXPECT_NEAR(rope.frequencies()[12], 0.006794959, 5e-10);
  EXPECT_NEAR(rope.attention_factor(), 1.3465736, 5e-8);
  const double low = 8.0927791, high = 17.3980245;
  for (std::size_t i = 9; i < 17; ++i) {
    const double blend = (static_cast<double>(i) - low) / (high - low);
    expect_relative(rope.frequencies()[i], plain(150000, 64, i) * (1 - blend + blend / 32), 1e-7);
  }
}

TEST(RopeScaling, YarnFactorsFollowTheirOptions) {
  const auto factor = [](YarnRope yarn) { return rope_of(64, 10000, yarn).attention_factor(); };
  // DeepSeek-V3: the two cancel, and the growth goes into the scale of the scores.
  EXPECT_DOUBLE_EQ(factor({.factor = 40, .mscale = 1, .mscale_all_dim = 1}), 1);
  EXPECT_DOUBLE_EQ(factor({.factor = 40, .mscale = 0.707, .mscale_all_dim = 1}),
                   (0.0707 * std::log(40) + 1) / (0.1 * std::log(40) + 1));
  EXPECT_DOUBLE_EQ(factor({.factor = 40, .mscale = 1}), 0.1 * std::log(40) + 1);
  EXPECT_DOUBLE_EQ(factor({.factor = 40, .attention_factor = 1.5}), 1.5);
  EXPECT_DOUBLE_EQ(factor({.factor = 0.5}), 1);
  const Rope deepseek = rope_of(64, 10000, YarnRope{.factor = 40});
  EXPECT_NEAR(deepseek.attention_factor(), 1.368888, 5e-7);
}

TEST(RopeScaling, Llama3HasThePublishedFrequencies) {
  const Rope rope = rope_of(128, 500000, Llama3Rope{});
  for (std::size_t i = 0; i <= 28; ++i) EXPECT_EQ(rope.frequencies()[i], plain(500000, 128, i));
  for (std::size_t i = 35; i < 64; ++i)
    expect_relative(rope.frequencies()[i], plain(500000, 128, i) / 8, 1e-14);
  expect_relative(rope.frequencies()[29], 0.0021665708, 5e-8);
  expect_relative(rope.frequencies()[32], 0.00052484616, 5e-8);
  expect_relative(rope.frequencies()[34], 0.00017850781, 5e-8);
  expect_relative(rope.frequencies()[35], 9.5562124e-5, 5e-8);
  expect_relative(rope.frequencies()[63], 3.0689260e-7, 5e-8);
  EXPECT_EQ(rope.attention_factor(), 1);
}

TEST(RopeScaling, LongRopeChoosesByLengthAndGrowsAsPublished) {
  LongRope scaling{.trained_tokens = 4096, .factor = 32};
  for (std::size_t i = 0; i < 48; ++i) {
    scaling.short_factors.push_back(1 + 0.01 * static_cast<double>(i));
    scaling.long_factors.push_back(1 + static_cast<double>(i));
  }
  const Rope rope = rope_of(96, 10000, scaling);
  EXPECT_NEAR(rope.attention_factor(), 1.1902381, 5e-8);
  const Rope longer = rope.for_length(4097);
  for (std::size_t i = 0; i < 48; ++i) {
    EXPECT_DOUBLE_EQ(rope.frequencies()[i], plain(10000, 96, i) / scaling.short_factors[i]);
    EXPECT_EQ(rope.for_length(4096).frequencies()[i], rope.frequencies()[i]);
    EXPECT_DOUBLE_EQ(longer.frequencies()[i], plain(10000, 96, i) / scaling.long_factors[i]);
  }
  EXPECT_EQ(longer.for_length(10).frequencies()[7], rope.frequencies()[7]);
  scaling.attention_factor = 1.25;
  EXPECT_EQ(rope_of(96, 10000, scaling).attention_factor(), 1.25);
  scaling.attention_factor = {}, scaling.factor = 1;
  EXPECT_EQ(rope_of(96, 10000, scaling).attention_factor(), 1);
}

TEST(RopeScaling, ExponentsOfPartialRopesCountRotatedChannels) {
  const Rope part({.dim = 80, .rotated = 20});
  EXPECT_EQ(part.frequencies().size(), 10u);
  EXPECT_DOUBLE_EQ(part.frequencies()[3], std::pow(10000, -6.0 / 20));
}

TEST(RopeScaling, LengthsMatterToDynamicAndLongRopesOnly) {
  for (const RopeScaling& scaling :
       {RopeScaling{}, RopeScaling{LinearRope{2}}, RopeScaling{NtkRope{2}},
        RopeScaling{YarnRope{.factor = 4}}, RopeScaling{Llama3Rope{}}}) {
    const Rope rope = rope_of(32, 10000, scaling);
    EXPECT_EQ(rope.for_length(1000000).frequencies().data(), rope.frequencies().data());
  }
}

}  // namespace
}  // namespace rapt::test
