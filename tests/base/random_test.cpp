#include "base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace rapt::test {
using namespace detail;
namespace {

TEST(RandomBits, AreThoseOfSplitMix) {
  // First outputs of SplitMix64 for the seeds 0 and 1234567, as published with the generator.
  EXPECT_EQ(scrambled(0), 0xE220A8397B1DCDAFu);
  EXPECT_EQ(scrambled(0x9E3779B97F4A7C15u), 0x6E789E6AA1B965F4u);
  EXPECT_EQ(scrambled(1234567), 6457827717110365317u);
}

TEST(RandomBits, DependOnSeedAndEveryPartOfThePlaceAndItsOrder) {
  const std::set<std::uint64_t> different = {random_bits(1, {2, 3}), random_bits(2, {2, 3}),
                                             random_bits(1, {3, 2}), random_bits(1, {2, 4}),
                                             random_bits(1, {2}),    random_bits(1, {2, 3, 0})};
  EXPECT_EQ(different.size(), 6u);
}

TEST(RandomBelow, FillsItsRangeEvenly) {
  EXPECT_EQ(random_below(0, 10), 0);
  EXPECT_EQ(random_below(~std::uint64_t{0}, 10), 9);
  EXPECT_EQ(random_below(~std::uint64_t{0}, Index{1} << 62), (Index{1} << 62) - 1);
  RandomStream stream(5);
  std::vector<Index> seen(7);
  for (int i = 0; i < 70'000; ++i) ++seen[static_cast<std::size_t>(stream.below(7))];
  // Six standard deviations of a count with p = 1/7.
  for (const Index count : seen) EXPECT_NEAR(count, 10'000, 6 * std::sqrt(70'000 * 6.0 / 49));
}

TEST(RandomOrder, TakesEveryNumberOnce) {
  for (const Index count : {1, 2, 3, 7, 63, 64, 65, 1000, 4096, 70'001}) {
    const RandomOrder order(count, 99);
    std::vector<bool> seen(static_cast<std::size_t>(count));
    for (Index i = 0; i < count; ++i) {
      ASSERT_GE(order[i], 0);
      ASSERT_LT(order[i], count);
      ASSERT_FALSE(seen[static_cast<std::size_t>(order[i])]) << count;
      seen[static_cast<std::size_t>(order[i])] = true;
    }
  }
}

TEST(RandomOrder, EveryOrderOfFourIsAsLikelyAsAnother) {
  std::vector<Index> seen(256);
  constexpr int draws = 48'000;
  for (int key = 0; key < draws; ++key) {
    const RandomOrder order(4, scrambled(static_cast<std::uint64_t>(key)));
    ++seen[static_cast<std::size_t>(order[0] + 4 * order[1] + 16 * order[2] + 64 * order[3])];
  }
  int orders = 0;
  for (const Index count : seen) {
    if (count == 0) continue;
    ++orders;
    EXPECT_NEAR(count, draws / 24, 6 * std::sqrt(draws / 24));
  }
  EXPECT_EQ(orders, 24);
}

TEST(RandomOrder, NumbersAbove32BitsStayInRangeAndDiffer) {
  for (const Index count : {(Index{1} << 31) + 7, (Index{1} << 40) + 1, (Index{1} << 61) + 3}) {
    const RandomOrder order(count, 3);
    std::set<Index> seen;
    for (const Index base : {Index{0}, count / 2, count - 1000})
      for (Index i = 0; i < 1000; ++i) {
        const Index image = order[base + i];
        EXPECT_GE(image, 0);
        EXPECT_LT(image, count);
        seen.insert(image);
      }
    EXPECT_EQ(seen.size(), 3000u);
    EXPECT_GT(*seen.rbegin(), count / 10 * 9);
  }
}

}  // namespace
}  // namespace rapt::test
