#include "rapt/pattern.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/pattern_rules.h"
#include "support/refused.h"

namespace rapt {
namespace {

using test::error_of;
using test::for_each_leaf_rule;
using test::for_random_rules;
using test::named;
using test::PatternRule;

constexpr Index lowest = std::numeric_limits<Index>::min();
constexpr Index highest = std::numeric_limits<Index>::max();

void expect_in_form(const Ranges& ranges, Index keys) {
  Index last_end = -1;
  for (const Range& range : ranges) {
    EXPECT_GT(range.begin, last_end);
    EXPECT_LT(range.begin, range.end);
    EXPECT_LE(range.end, keys);
    last_end = range.end;
  }
}

void expect_follows(const PatternRule& rule, Lengths lengths) {
  SCOPED_TRACE(named(rule.pattern, lengths));
  Ranges ranges;
  for (Index query = 0; query < lengths.queries; ++query) {
    rule.pattern.keys_of(query, lengths, ranges);
    expect_in_form(ranges, lengths.keys);
    std::size_t at = 0;
    for (Index key = 0; key < lengths.keys; ++key) {
      while (at < ranges.size() && ranges[at].end <= key) ++at;
      const bool given = at < ranges.size() && ranges[at].begin <= key;
      ASSERT_EQ(given, rule.may_see(query, key)) << "query " << query << ", key " << key;
    }
  }
}

TEST(Pattern, GivesEachQueryTheKeysOfItsRule) { for_each_leaf_rule(expect_follows); }

TEST(Pattern, CombinesRulesAsSets) {
  for_random_rules({.seed = 3, .count = 150, .height = 4, .longest = 90}, expect_follows);
}

TEST(Pattern, IsEverythingUnlessSaidOtherwise) { EXPECT_EQ(Pattern(), full()); }

TEST(Pattern, GroupsChainsAlike) {
  const Pattern a = causal(), b = window(3, 0), c = keys(5);
  EXPECT_EQ((a & b) & c, a & (b & c));
  EXPECT_EQ((a | b) | c, a | (b | c));
  EXPECT_FALSE(((a | b) & c) == (a | (b & c)));
  EXPECT_FALSE((a & b) == (b & a));
  EXPECT_FALSE((a & b) == (a | b));
  EXPECT_FALSE((a & a) == a);
}

TEST(Pattern, KeepsDifferentArgumentsApart) {
  EXPECT_FALSE(causal() == causal(Align::first));
  EXPECT_FALSE(window(1, 2) == window(2, 1));
  EXPECT_FALSE(keys(3) == prefix(3));
  EXPECT_FALSE(documents({3}) == documents({3}, {3}));
  EXPECT_FALSE(blocks(2, {{0}}) == blocks(2, {{0}, {}}));
  EXPECT_EQ(tokens({7, 0, 7}), tokens({0, 7}));
  EXPECT_EQ(blocks(2, {{1, 0}}), blocks(2, {{0, 1}}));
}

TEST(Pattern, SaturatesAtTheEndsOfIndex) {
  const Lengths lengths{4, 9};
  const Ranges all = {{0, 9}};
  EXPECT_EQ(window(highest, highest).keys_of(0, lengths), all);
  EXPECT_TRUE(window(lowest, highest).keys_of(0, lengths).empty());
  EXPECT_TRUE(window(highest, lowest).keys_of(0, lengths).empty());
  EXPECT_EQ(keys(highest).keys_of(0, lengths), all);
  EXPECT_EQ(dilated(highest, highest, highest).keys_of(3, lengths), (Ranges{{8, 9}}));
  EXPECT_EQ(window(0, highest).keys_of(0, {1, highest}), (Ranges{{highest - 1, highest}}));
  EXPECT_EQ(window(lowest + 1, highest, Align::first).keys_of(0, {highest, highest}), Ranges{});
  EXPECT_EQ(causal().keys_of(highest - 1, {highest, 1}), (Ranges{{0, 1}}));
  EXPECT_EQ(dilated(1, highest, highest).keys_of(0, {highest, 1}), (Ranges{{0, 1}}));
}

TEST(Pattern, AnswersAtPositionsPast32Bits) {
  const Index here = Index{1} << 40;
  EXPECT_EQ(window(2, 0).keys_of(0, {1, here}), (Ranges{{here - 3, here}}));
  EXPECT_EQ(documents({here, here}).keys_of(0, {1, 2 * here}), (Ranges{{here, 2 * here}}));
}

TEST(Pattern, TakesChainsOfThousands) {
  Pattern chain = tokens({0});
  for (Index position = 2; position < 4000; position += 2) chain = chain | tokens({position});
  EXPECT_EQ(chain.keys_of(1, {4000, 4000}).size(), 2000u);
  EXPECT_EQ(Pattern::parse(to_string(chain)), chain);
}

Pattern alternating(int levels) {
  Pattern pattern = causal();
  for (int level = 0; level < levels; ++level)
    pattern = level % 2 == 0 ? pattern | keys(level) : pattern & window(level, 0);
  return pattern;
}

TEST(Pattern, RefusesTreesTooDeepToWalk) {
  for (const int levels : {255, 256}) {
    const Pattern deepest = alternating(levels);
    EXPECT_EQ(Pattern::parse(to_string(deepest)), deepest);
    EXPECT_FALSE(deepest.keys_of(9, {10, 10}).empty());
  }
  EXPECT_EQ(error_of([] { alternating(257); }),
            "pattern is too deep: & and | alternate over more than 256 levels");
}

TEST(Pattern, RefusesArgumentsThatMeanNothing) {
  const auto expect_error = [](const auto& act, std::string_view message) {
    EXPECT_EQ(error_of(act), message);
  };
  expect_error([] { causal(static_cast<Align>(7)); },
               "causal: align is 7, expected Align::last or Align::first");
  expect_error([] { window(1, 1, static_cast<Align>(9)); },
               "window: align is 9, expected Align::last or Align::first");
  expect_error(
      [] {
        tokens({3, -1});
      },
      "tokens: position -1 given, expected 0 to 9223372036854775806");
  expect_error([] { tokens({highest}); },
               "tokens: position 9223372036854775807 given, expected 0 to 9223372036854775806");
  expect_error([] { prefix(-2); }, "prefix: -2 positions given, expected 0 or more");
  expect_error([] { keys(-2); }, "keys: -2 keys given, expected 0 or more");
  expect_error(
      [] {
        documents({4, -3});
      },
      "documents: length -3 of document 1 given, expected 0 or more");
  expect_error([] { documents({4}, {-3}); },
               "documents: key length -3 of document 0 given, expected 0 or more");
  expect_error(
      [] {
        documents({highest, 1}, {1, 1});
      },
      "documents: the query lengths add up to more than 64 bits hold");
  expect_error(
      [] {
        documents({4}, {3, 1});
      },
      "documents: 1 query lengths and 2 key lengths given, expected as many of both");
  expect_error([] { blocks(0, {}); }, "blocks: size is 0, expected 1 or more");
  expect_error(
      [] {
        blocks(4, {{}, {-1}});
      },
      "blocks: key block -1 given for query block 1, expected 0 to 9223372036854775806");
  expect_error([] { blocks(4, {{2, 0, 2}}); }, "blocks: query block 0 names key block 2 twice");
  expect_error([] { dilated(0, 1, 1); }, "dilated: step is 0, expected 1 or more");
  expect_error([] { dilated(2, -1, 1); },
               "dilated: -1 steps to the left and 1 to the right given, expected 0 or more");
  expect_error([] { mask({}, -1, 2); },
               "mask: -1 queries and 2 keys given, expected 0 or more of each");
  expect_error([] { mask({}, 1, 2); },
               "mask: 0 values given for 1 queries and 2 keys, expected their product");
}

TEST(Pattern, RefusesLengthsItDoesNotFit) {
  const auto expect_error = [](const Pattern& pattern, Lengths lengths, std::string_view message) {
    EXPECT_EQ(error_of([&] { pattern.check(lengths); }), message);
    EXPECT_EQ(error_of([&] { pattern.keys_of(0, lengths); }), message);
    EXPECT_EQ(error_of([&] { (full() | (causal() & pattern)).check(lengths); }), message);
  };
  expect_error(full(), {-1, 4}, "pattern: -1 queries and 4 keys given, expected 0 or more of each");
  expect_error(full(), {1, -4}, "pattern: 1 queries and -4 keys given, expected 0 or more of each");
  expect_error(tokens({0, 8}), {8, 8}, "tokens: position 8 does not exist among 8 keys");
  expect_error(documents({5, 4}), {9, 8},
               "documents: the lengths add up to 9, expected at most the 8 keys");
  expect_error(documents({5, 4}, {1, 1}), {8, 8},
               "documents: the query lengths add up to 9, expected at most the 8 queries");
  expect_error(documents({1, 1}, {5, 4}), {8, 8},
               "documents: the key lengths add up to 9, expected at most the 8 keys");
  expect_error(blocks(4, {{2}}), {8, 8},
               "blocks: key block 2 of size 4 does not exist among 8 keys");
  expect_error(blocks(highest, {{highest - 1}}), {8, highest},
               "blocks: key block 9223372036854775806 of size 9223372036854775807 does not exist "
               "among 9223372036854775807 keys");
  const bool pair[2] = {true, false};
  expect_error(mask(pair, 1, 2), {2, 1},
               "mask: made for 1 queries and 2 keys, given 2 queries and 1 keys");
}

TEST(Pattern, RefusesQueriesThatDoNotExist) {
  for (const Index query : {Index{-1}, Index{4}, lowest, highest})
    EXPECT_EQ(error_of([&] {
                full().keys_of(query, {4, 9});
              }),
              "pattern: given query " + std::to_string(query) + ", expected one of 4 queries");
}

TEST(Pattern, WithZeroLengthDocumentsSkipsThem) {
  const Pattern pattern = documents({0, 2, 0, 0, 3, 0});
  EXPECT_EQ(pattern.keys_of(0, {6, 6}), (Ranges{{0, 2}}));
  EXPECT_EQ(pattern.keys_of(2, {6, 6}), (Ranges{{2, 5}}));
  EXPECT_TRUE(pattern.keys_of(5, {6, 6}).empty());
}

}  // namespace
}  // namespace rapt
