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

/// "window(1, 2) with 3 queries and 4 keys"
std::string named(const Pattern& pattern, Lengths lengths);

}  // namespace rapt::test
