#include "attention/pattern/ranges.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

namespace rapt::test {
using namespace detail;
namespace {

constexpr Index lowest = std::numeric_limits<Index>::min();
constexpr Index highest = std::numeric_limits<Index>::max();

using Set = std::vector<bool>;

Set random_set(std::mt19937_64& random) {
  Set set(random() % 40);
  const auto rarity = 1 + random() % 6;
  for (auto&& member : set) member = random() % rarity == 0;
  return set;
}

Ranges ranges_of(const Set& set) {
  Ranges ranges;
  for (std::size_t i = 0; i < set.size(); ++i) {
    const auto key = static_cast<Index>(i);
    if (set[i] && (i == 0 || !set[i - 1])) ranges.push_back({key, key});
    if (set[i]) ranges.back().end = key + 1;
  }
  return ranges;
}

bool has(const Set& set, std::size_t member) { return member < set.size() && set[member]; }

template <class Rule>
Ranges combined(const Set& a, const Set& b, const Rule& rule) {
  Set set(std::max(a.size(), b.size()));
  for (std::size_t i = 0; i < set.size(); ++i) set[i] = rule(has(a, i), has(b, i));
  return ranges_of(set);
}

TEST(RangesAlgebra, AgreesWithSetsOfNumbers) {
  std::mt19937_64 random(1);
  Ranges out;
  for (int round = 0; round < 5000; ++round) {
    const Set a = random_set(random);
    const Set b = random_set(random);
    intersect(ranges_of(a), ranges_of(b), out);
    EXPECT_EQ(out, combined(a, b, std::logical_and<>()));
    unite(ranges_of(a), ranges_of(b), out);
    EXPECT_EQ(out, combined(a, b, std::logical_or<>()));
  }
}

TEST(RangesAlgebra, OfTheSameOperandsGivesThemBack) {
  const Ranges some = {{0, 3}, {5, 6}, {9, 20}};
  Ranges out;
  intersect(some, some, out);
  EXPECT_EQ(out, some);
  unite(some, some, out);
  EXPECT_EQ(out, some);
}

TEST(Normalize, MakesOneListOfRangesInAnyOrder) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 2000; ++round) {
    Set all(40);
    Ranges ranges;
    for (auto count = random() % 8; count > 0; --count) {
      const auto begin = static_cast<Index>(random() % 35);
      const auto end = begin + 1 + static_cast<Index>(random() % 5);
      ranges.push_back({begin, end});
      for (Index key = begin; key < end; ++key) all[static_cast<std::size_t>(key)] = true;
    }
    normalize(ranges);
    EXPECT_EQ(ranges, ranges_of(all));
  }
}

TEST(AppendClipped, KeepsWhatLiesAmongTheKeys) {
  Ranges out;
  append_clipped(out, lowest, -1, 10);
  append_clipped(out, 5, 5, 10);
  EXPECT_TRUE(out.empty());
  append_clipped(out, -4, 2, 10);
  append_clipped(out, 2, 3, 10);
  append_clipped(out, 8, highest, 10);
  append_clipped(out, 11, highest, 10);
  EXPECT_EQ(out, (Ranges{{0, 3}, {8, 10}}));
  EXPECT_EQ(count_keys(out), 5);
}

TEST(SaturatingArithmetic, StopsAtTheEndsOfIndex) {
  EXPECT_EQ(saturating_add(2, 3), 5);
  EXPECT_EQ(saturating_add(highest, 1), highest);
  EXPECT_EQ(saturating_add(lowest, -1), lowest);
  EXPECT_EQ(saturating_add(lowest, highest), -1);
  EXPECT_EQ(saturating_subtract(2, 3), -1);
  EXPECT_EQ(saturating_subtract(0, lowest), highest);
  EXPECT_EQ(saturating_subtract(-2, highest), lowest);
  EXPECT_EQ(saturating_multiply(highest, 2), highest);
  EXPECT_EQ(saturating_multiply(3, 4), 12);
}

}  // namespace
}  // namespace rapt::test
