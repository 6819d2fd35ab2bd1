#pragma once

#include <functional>
#include <random>
#include <vector>

#include "rapt/pattern.h"

namespace rapt::test {

/// A pattern and, pair by pair, what it means; the two know nothing of each other.
struct PatternRule {
  Pattern pattern;
  std::function<bool(Index query, Index key)> may_see;
};

/// Every kind of leaf with several arguments that fit the lengths, extremes included.
std::vector<PatternRule> leaf_rules(Lengths lengths);

/// A random leaf that fits the lengths.
PatternRule random_leaf(std::mt19937_64& random, Lengths lengths);

/// A random expression of at most `height` levels.
PatternRule random_rule(std::mt19937_64& random, Lengths lengths, Index height);

/// Pairs of lengths around the tile edges, more queries than keys and the reverse included.
std::vector<Lengths> awkward_lengths();

/// Calls check(rule, lengths) for every leaf at all of awkward_lengths().
template <class Check>
void for_each_leaf_rule(const Check& check) {
  for (const Lengths lengths : awkward_lengths())
    for (const PatternRule& rule : leaf_rules(lengths)) check(rule, lengths);
}

/// Random expressions: how many, of what height and for which lengths.
struct RandomRules {
  std::uint64_t seed;
  int count;
  Index height;
  Index longest;  // of queries and keys, not included
};
/// Calls check(rule, lengths) for each.
template <class Check>
void for_random_rules(const RandomRules& how, const Check& check) {
  std::mt19937_64 random(how.seed);
  const auto longest = static_cast<std::uint64_t>(how.longest);
  for (int round = 0; round < how.count; ++round) {
    const Lengths lengths{static_cast<Index>(random() % longest),
                          static_cast<Index>(random() % longest)};
    check(random_rule(random, lengths, how.height), lengths);
  }
}

/// "window(1, 2) with 3 queries and 4 keys"
std::string named(const Pattern& pattern, Lengths lengths);

}  // namespace rapt::test
