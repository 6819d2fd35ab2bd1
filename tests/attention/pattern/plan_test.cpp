#include "rapt/plan.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <thread>

#include "support/pattern_rules.h"
#include "support/refused.h"

namespace rapt {
namespace {

using test::error_of;
using test::for_each_leaf_rule;
using test::for_random_rules;
using test::named;
using test::PatternRule;
using test::random_rule;

constexpr Index plan_tile = Plan::tile;
constexpr std::int32_t absent = -2;

/// The mask of every tile, one row after another; `absent` where there is no visit.
struct Grid {
  Index columns;
  std::vector<std::int32_t> masks;
  Grid(Index grid_rows, Index grid_columns)
      : columns(grid_columns), masks(static_cast<std::size_t>(grid_rows * grid_columns), absent) {}
  std::int32_t& at(Index row, Index column) {
    return masks[static_cast<std::size_t>(row * columns + column)];
  }
};

/// Lays out a list of runs, which must ascend, stay inside `tiles` and be as long as they can be.
template <class Set>
void lay_out(std::span<const Visit> runs, Index tiles, const Set& set) {
  Visit before{0, 0, absent};
  for (const Visit& run : runs) {
    ASSERT_GT(run.count, 0);
    ASSERT_GE(run.first, before.first + before.count);
    ASSERT_FALSE(run.mask == before.mask && run.first == before.first + before.count);
    ASSERT_LE(run.first + run.count, tiles);
    for (Index at = run.first; at < run.first + run.count; ++at) set(at, run.mask);
    before = run;
  }
}

Grid grid_of(const Plan& plan) {
  Grid grid(plan.query_tiles(), plan.key_tiles());
  for (Index row = 0; row < plan.query_tiles(); ++row)
    lay_out(plan.visits(row), plan.key_tiles(),
            [&](Index column, std::int32_t mask) { grid.at(row, column) = mask; });
  return grid;
}

Grid transposed_grid_of(const Plan& plan) {
  Grid grid(plan.query_tiles(), plan.key_tiles());
  for (Index column = 0; column < plan.key_tiles(); ++column)
    lay_out(plan.visitors(column), plan.query_tiles(),
            [&](Index row, std::int32_t mask) { grid.at(row, column) = mask; });
  return grid;
}

/// The bits that a tile must have, straight from the rule.
std::vector<std::uint64_t> expected_words(const PatternRule& rule, Lengths lengths, Index row,
                                          Index column) {
  std::vector<std::uint64_t> words(plan_tile);
  for (Index query = row * plan_tile; query < std::min(lengths.queries, (row + 1) * plan_tile);
       ++query)
    for (Index key = column * plan_tile; key < std::min(lengths.keys, (column + 1) * plan_tile);
         ++key)
      if (rule.may_see(query, key))
        words[static_cast<std::size_t>(query % plan_tile)] |= std::uint64_t{1} << (key % plan_tile);
  return words;
}

/// What the counters of a plan should say.
struct Counts {
  Index pairs = 0, whole = 0, masked = 0;
};

void expect_tile(const Plan& plan, std::int32_t mask, const std::vector<std::uint64_t>& words,
                 Index row, Counts& counts) {
  const Index rows = std::min(plan_tile, plan.lengths().queries - row * plan_tile);
  Index pairs = 0;
  for (const std::uint64_t word : words) pairs += std::popcount(word);
  counts.pairs += pairs;
  if (pairs == 0) {
    ASSERT_EQ(mask, absent);
  } else if (pairs == rows * plan_tile) {
    ASSERT_EQ(mask, Visit::whole);
    ++counts.whole;
  } else {
    ASSERT_GE(mask, 0);
    const auto given = plan.mask(mask);
    ASSERT_TRUE(std::equal(given.begin(), given.end(), words.begin()));
    ++counts.masked;
  }
}

void expect_seen(const Plan& plan, const PatternRule& rule) {
  std::vector<Index> pairs(static_cast<std::size_t>(plan.query_tiles()));
  for (Index query = 0; query < plan.lengths().queries; ++query) {
    Index seen = 0;
    for (Index key = 0; key < plan.lengths().keys; ++key) seen += rule.may_see(query, key);
    ASSERT_EQ(plan.keys_seen(query), seen) << "query " << query;
    pairs[static_cast<std::size_t>(query / plan_tile)] += seen;
  }
  for (Index row = 0; row < plan.query_tiles(); ++row)
    ASSERT_EQ(plan.pairs(row), pairs[static_cast<std::size_t>(row)]);
}

void expect_equals(const PatternRule& rule, Lengths lengths) {
  SCOPED_TRACE(named(rule.pattern, lengths));
  const Plan plan(rule.pattern, lengths);
  ASSERT_EQ(plan.lengths(), lengths);
  ASSERT_EQ(plan.query_tiles(), (lengths.queries + 63) / 64);
  ASSERT_EQ(plan.key_tiles(), (lengths.keys + 63) / 64);
  Grid grid = grid_of(plan);
  ASSERT_EQ(transposed_grid_of(plan).masks, grid.masks);
  Counts counts;
  for (Index row = 0; row < plan.query_tiles(); ++row)
    for (Index column = 0; column < plan.key_tiles(); ++column)
      expect_tile(plan, grid.at(row, column), expected_words(rule, lengths, row, column), row,
                  counts);
  EXPECT_EQ(plan.pairs(), counts.pairs);
  EXPECT_EQ(plan.whole_tiles(), counts.whole);
  EXPECT_EQ(plan.masked_tiles(), counts.masked);
  expect_seen(plan, rule);
}

TEST(Plan, EqualsTheRuleOfEveryLeaf) { for_each_leaf_rule(expect_equals); }

TEST(Plan, EqualsTheRuleOfRandomExpressions) {
  for_random_rules({.seed = 8, .count = 200, .height = 3, .longest = 300}, expect_equals);
}

TEST(Plan, EqualsTheRuleOverManyTiles) {
  std::mt19937_64 random(9);
  for (const Lengths lengths : {Lengths{700, 1500}, Lengths{1500, 700}, Lengths{1, 4000}})
    for (int round = 0; round < 4; ++round) expect_equals(random_rule(random, lengths, 2), lengths);
}

TEST(Plan, StoresEqualMasksOnce) {
  EXPECT_EQ(Plan(causal(), {4096, 4096}).masks(), 1);
  EXPECT_EQ(Plan(causal(), {4095, 4095}).masks(), 2);
  EXPECT_EQ(Plan(full(), {4096, 4096}).masks(), 0);
  EXPECT_EQ(Plan(full(), {4096, 4095}).masks(), 1);
  EXPECT_EQ(Plan(causal() & window(512, 0), {1 << 16, 1 << 16}).masks(), 2);
}

TEST(Plan, MergesTilesThatLookAlike) {
  const Plan plan(full() | tokens({0}), {640, 640});
  EXPECT_EQ(std::vector(plan.visits(3).begin(), plan.visits(3).end()),
            (std::vector<Visit>{{0, 10, Visit::whole}}));
  const Plan striped(dilated(2, 1000, 1000) & keys(128), {640, 640});
  EXPECT_EQ(striped.visits(9).size(), 1u);
  EXPECT_EQ(striped.visitors(1).size(), 1u);
  EXPECT_EQ(striped.masks(), 1);
}

TEST(Plan, CountsWithoutOverflowPast32Bits) {
  const Plan plan(full(), {1 << 20, 1 << 20});
  EXPECT_EQ(plan.pairs(), Index{1} << 40);
  EXPECT_EQ(plan.pairs(5), Index{1} << 26);
  EXPECT_EQ(plan.whole_tiles(), Index{1} << 28);
  EXPECT_EQ(plan.visitors(77).size(), 1u);
}

TEST(Plan, ReachesKeysPast32Bits) {
  const Index keys = (Index{1} << 36) + 5;
  const Plan plan(window(1, 0) | tokens({0}), {2, keys});
  EXPECT_EQ(plan.keys_seen(1), 3);
  ASSERT_EQ(plan.visits(0).size(), 2u);
  EXPECT_EQ(plan.visits(0)[1].first, 1 << 30);
}

TEST(Plan, OfAMillionTokensStaysSmall) {
  const Index tokens_count = 1 << 20;
  const Plan plan(window(256, 256) | tokens({0}), {tokens_count, tokens_count});
  EXPECT_LT(plan.bytes(), 16 << 20);
  EXPECT_LE(plan.masks(), 8);
  const Index before = plan.bytes();
  plan.visitors(0);
  EXPECT_GT(plan.bytes(), before);
  EXPECT_LT(plan.bytes(), 16 << 20);
}

TEST(Plan, WithoutTokensIsEmpty) {
  const Plan plan(causal(), {0, 0});
  EXPECT_EQ(plan.query_tiles(), 0);
  EXPECT_EQ(plan.pairs(), 0);
  EXPECT_EQ(plan.drawing(80), "");
  EXPECT_TRUE(Plan(full(), {3, 0}).visits(0).empty());
  EXPECT_TRUE(Plan(full(), {0, 3}).visitors(0).empty());
}

TEST(Plan, TransposesOnceForAllThreads) {
  const Plan plan(causal() & window(300, 0), {4000, 4000});
  std::vector<const Visit*> found(4);
  std::vector<std::thread> threads;
  for (const Visit*& where : found)
    threads.emplace_back([&plan, &where] {
      EXPECT_GT(plan.bytes(), 0);
      where = plan.visitors(3).data();
    });
  for (std::thread& thread : threads) thread.join();
  for (const Visit* where : found) EXPECT_EQ(where, found[0]);
}

TEST(Plan, RefusesLengthsItCannotHold) {
  constexpr Index highest = std::numeric_limits<Index>::max();
  EXPECT_EQ(error_of([] {
              Plan(full(), {-1, 2});
            }),
            "pattern: -1 queries and 2 keys given, expected 0 or more of each");
  EXPECT_EQ(error_of([] {
              Plan(tokens({9}), {4, 4});
            }),
            "tokens: position 9 does not exist among 4 keys");
  EXPECT_EQ(error_of([] {
              Plan(full(), {1, highest});
            }),
            "plan: 9223372036854775807 keys given, expected at most 137438953408");
  EXPECT_EQ(error_of([] {
              Plan(full(), {137438953409, 1});
            }),
            "plan: 137438953409 queries given, expected at most 137438953408");
  EXPECT_EQ(error_of([] {
              Plan(full(), {137438953408, 137438953408});
            }),
            "plan: 137438953408 queries times 137438953408 keys do not fit 64 bits");
}

TEST(Plan, RefusesNumbersThatDoNotExist) {
  const Plan plan(causal(), {100, 200});
  EXPECT_EQ(error_of([&] { plan.visits(2); }), "plan: query tile 2 asked for, expected one of 2");
  EXPECT_EQ(error_of([&] { plan.pairs(-1); }), "plan: query tile -1 asked for, expected one of 2");
  EXPECT_EQ(error_of([&] { plan.visitors(4); }), "plan: key tile 4 asked for, expected one of 4");
  EXPECT_EQ(error_of([&] { plan.keys_seen(100); }),
            "plan: query 100 asked for, expected one of 100");
  EXPECT_EQ(error_of([&] { plan.mask(Visit::whole); }),
            "plan: mask -1 asked for, expected one of 4");
  EXPECT_EQ(error_of([&] { plan.drawing(0); }),
            "plan: a drawing 0 columns wide asked for, expected 1 or more");
}

TEST(Drawing, ShowsWholeMaskedAndAbsentTiles) {
  EXPECT_EQ(Plan(causal(), {192, 192}).drawing(80),
            "▒▒····\n"
            "██▒▒··\n"
            "████▒▒\n");
  EXPECT_EQ(Plan(causal(), {64, 256}).drawing(80), "██████▒▒\n");
}

TEST(Drawing, LetsACharacterStandForManyTiles) {
  EXPECT_EQ(Plan(causal(), {64 * 16, 64 * 16}).drawing(8),
            "▒▒······\n"
            "██▒▒····\n"
            "████▒▒··\n"
            "██████▒▒\n");
  EXPECT_EQ(Plan(causal(), {1 << 16, 1 << 16}).drawing(1), "▒\n");
  EXPECT_EQ(Plan(full(), {1 << 16, 1 << 16}).drawing(3), "███\n███\n");
}

TEST(Drawing, FitsItsColumns) {
  for (const Lengths lengths : {Lengths{1, 5000}, Lengths{5000, 1}, Lengths{3000, 5000}})
    for (const Index columns : {1, 2, 3, 7, 40, 79, 80, 158, 1000}) {
      const std::string picture = Plan(causal(), lengths).drawing(columns);
      ASSERT_FALSE(picture.empty());
      EXPECT_EQ(picture.back(), '\n');
      Index width = 0;
      for (const char c : picture) {
        // A character begins at every byte that does not continue one.
        if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) ++width;
        if (c != '\n') continue;
        EXPECT_LE(width - 1, columns);
        width = 0;
      }
    }
}

}  // namespace
}  // namespace rapt
