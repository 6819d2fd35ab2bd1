#include "support/pattern_rules.h"

#include <algorithm>
#include <limits>
#include <memory>

namespace rapt::test {

namespace {

// Wide enough that no rule below has to think about overflow.
using Wide = __int128;

constexpr Index lowest = std::numeric_limits<Index>::min();
constexpr Index highest = std::numeric_limits<Index>::max();

Index draw(std::mt19937_64& random, Index least, Index most) {
  return least + static_cast<Index>(random() % static_cast<std::uint64_t>(most - least + 1));
}

bool contains(const std::vector<Index>& numbers, Index wanted) {
  return std::find(numbers.begin(), numbers.end(), wanted) != numbers.end();
}

Index document_of(const std::vector<Index>& lengths, Index position) {
  if (position < 0) return -1;
  for (std::size_t document = 0; document < lengths.size(); ++document) {
    if (position < lengths[document]) return static_cast<Index>(document);
    position -= lengths[document];
  }
  return -1;
}

PatternRule full_rule() {
  return {full(), [](Index, Index) { return true; }};
}

PatternRule causal_rule(Align align, Lengths lengths) {
  return {causal(align), [=](Index query, Index key) {
            return key <= (align == Align::last ? lengths.keys - lengths.queries + query : query);
          }};
}

PatternRule window_rule(Index left, Index right, Align align, Lengths lengths) {
  return {window(left, right, align), [=](Index query, Index key) {
            const Wide here = align == Align::last ? lengths.keys - lengths.queries + query : query;
            return key >= here - Wide{left} && key <= here + Wide{right};
          }};
}

PatternRule tokens_rule(const std::vector<Index>& positions, Lengths lengths) {
  return {tokens(positions), [=](Index query, Index key) {
            return contains(positions, key) ||
                   contains(positions, lengths.keys - lengths.queries + query);
          }};
}

PatternRule prefix_rule(Index n, Lengths lengths) {
  return {prefix(n), [=](Index query, Index key) {
            const Index here = lengths.keys - lengths.queries + query;
            return here >= 0 && here < n && key < n;
          }};
}

PatternRule documents_rule(const std::vector<Index>& documents_lengths, Lengths lengths) {
  return {documents(documents_lengths), [=](Index query, Index key) {
            const Index here = lengths.keys - lengths.queries + query;
            const Index document = document_of(documents_lengths, here);
            return document >= 0 && document == document_of(documents_lengths, key);
          }};
}

PatternRule documents_rule(const std::vector<Index>& query_lengths,
                           const std::vector<Index>& key_lengths) {
  return {documents(query_lengths, key_lengths), [=](Index query, Index key) {
            const Index document = document_of(query_lengths, query);
            return document >= 0 && document == document_of(key_lengths, key);
          }};
}

PatternRule blocks_rule(Index size, const std::vector<std::vector<Index>>& table, Lengths lengths) {
  return {blocks(size, table), [=](Index query, Index key) {
            const Index here = lengths.keys - lengths.queries + query;
            if (here < 0 || here / size >= std::ssize(table)) return false;
            return contains(table[static_cast<std::size_t>(here / size)], key / size);
          }};
}

PatternRule keys_rule(Index n) {
  return {keys(n), [=](Index, Index key) { return key < n; }};
}

PatternRule dilated_rule(Index step, Index left, Index right, Lengths lengths) {
  return {dilated(step, left, right), [=](Index query, Index key) {
            const Wide away = Wide{key} - (lengths.keys - lengths.queries + query);
            return away % step == 0 && away >= -Wide{left} * step && away <= Wide{right} * step;
          }};
}

PatternRule mask_rule(std::mt19937_64& random, Lengths lengths) {
  const auto pairs = static_cast<std::size_t>(lengths.queries * lengths.keys);
  const std::shared_ptr<bool[]> bits(new bool[pairs]);
  const std::uint64_t rarity = 1 + random() % 20;
  for (std::size_t i = 0; i < pairs; ++i) bits.get()[i] = (random() % rarity == 0) == (rarity < 12);
  return {mask({bits.get(), pairs}, lengths.queries, lengths.keys),
          [=](Index query, Index key) { return bits[query * lengths.keys + key]; }};
}

std::vector<Index> random_positions(std::mt19937_64& random, Index keys) {
  std::vector<Index> positions;
  for (Index i = draw(random, 0, 5); i > 0 && keys > 0; --i)
    positions.push_back(draw(random, 0, keys - 1));
  return positions;
}

std::vector<Index> random_lengths(std::mt19937_64& random, Index count, Index total) {
  std::vector<Index> lengths;
  for (Index i = 0; i < count; ++i) {
    lengths.push_back(random() % 4 == 0 ? 0 : draw(random, 0, total));
    total -= lengths.back();
  }
  return lengths;
}

PatternRule random_blocks(std::mt19937_64& random, Lengths lengths) {
  const Index size = random() % 3 == 0 ? 64 : draw(random, 1, 70);
  const Index key_blocks = (lengths.keys + size - 1) / size;
  std::vector<std::vector<Index>> table(static_cast<std::size_t>(draw(random, 0, key_blocks + 1)));
  for (auto& row : table) {
    for (Index block = 0; block < key_blocks; ++block)
      if (random() % 2 == 0) row.push_back(block);
    std::shuffle(row.begin(), row.end(), random);
  }
  return blocks_rule(size, table, lengths);
}

Index random_side(std::mt19937_64& random) {
  const Index extremes[] = {lowest, lowest + 1, -1, 0, highest - 1, highest};
  return random() % 8 == 0 ? extremes[random() % 6] : draw(random, -20, 150);
}

PatternRule joined(const PatternRule& a, const PatternRule& b, bool both) {
  if (both) {
    return {a.pattern & b.pattern, [a, b](Index query, Index key) {
              return a.may_see(query, key) && b.may_see(query, key);
            }};
  }
  return {a.pattern | b.pattern, [a, b](Index query, Index key) {
            return a.may_see(query, key) || b.may_see(query, key);
          }};
}

}  // namespace

std::vector<PatternRule> leaf_rules(Lengths lengths) {
  std::vector<PatternRule> rules = {full_rule()};
  for (const Align align : {Align::last, Align::first}) {
    rules.push_back(causal_rule(align, lengths));
    for (const Index left : {lowest, Index{-3}, Index{0}, Index{1}, Index{64}, Index{90}, highest})
      for (const Index right : {lowest, Index{-2}, Index{0}, Index{5}, Index{64}, highest})
        rules.push_back(window_rule(left, right, align, lengths));
  }
  for (const Index n : {Index{0}, Index{1}, Index{63}, Index{64}, Index{65}, highest}) {
    rules.push_back(prefix_rule(n, lengths));
    rules.push_back(keys_rule(n));
  }
  for (const Index step : {Index{1}, Index{2}, Index{64}, highest})
    for (const Index side : {Index{0}, Index{3}, highest})
      rules.push_back(dilated_rule(step, side, 2, lengths));
  std::mt19937_64 random(static_cast<std::uint64_t>(1000 * lengths.queries + lengths.keys));
  for (int i = 0; i < 40; ++i) rules.push_back(random_leaf(random, lengths));
  return rules;
}

PatternRule random_leaf(std::mt19937_64& random, Lengths lengths) {
  const Align align = random() % 2 == 0 ? Align::last : Align::first;
  switch (random() % 11) {
    case 0:
      return full_rule();
    case 1:
      return causal_rule(align, lengths);
    case 2:
      return window_rule(random_side(random), random_side(random), align, lengths);
    case 3:
      return tokens_rule(random_positions(random, lengths.keys), lengths);
    case 4:
      return prefix_rule(draw(random, 0, lengths.keys + 2), lengths);
    case 5:
      return documents_rule(random_lengths(random, draw(random, 0, 6), lengths.keys), lengths);
    case 6: {
      const Index count = draw(random, 0, 6);
      return documents_rule(random_lengths(random, count, lengths.queries),
                            random_lengths(random, count, lengths.keys));
    }
    case 7:
      return random_blocks(random, lengths);
    case 8:
      return keys_rule(draw(random, 0, lengths.keys + 2));
    case 9:
      return dilated_rule(draw(random, 1, 9), draw(random, 0, 30), draw(random, 0, 30), lengths);
    default:
      return mask_rule(random, lengths);
  }
}

PatternRule random_rule(std::mt19937_64& random, Lengths lengths, Index height) {
  if (height == 0 || random() % 4 == 0) return random_leaf(random, lengths);
  const bool both = random() % 2 == 0;
  PatternRule rule = random_rule(random, lengths, height - 1);
  for (Index more = draw(random, 1, 3); more > 0; --more)
    rule = joined(rule, random_rule(random, lengths, height - 1), both);
  return rule;
}

std::vector<Lengths> awkward_lengths() {
  const Index sizes[] = {0, 1, 2, 63, 64, 65, 127, 128, 200};
  std::vector<Lengths> all;
  for (const Index queries : sizes)
    for (const Index keys : sizes) all.push_back({queries, keys});
  return all;
}

std::string named(const Pattern& pattern, Lengths lengths) {
  return to_string(pattern).substr(0, 2000) + " with " + std::to_string(lengths.queries) +
         " queries and " + std::to_string(lengths.keys) + " keys";
}

}  // namespace rapt::test
