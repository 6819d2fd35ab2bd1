#include "model/layout.h"

#include <algorithm>
#include <numeric>

#include "attention/pattern_node.h"
#include "base/check.h"

namespace rapt {
namespace {

/// Whether the pattern names places of a sequence and not only distances.
bool names_places(const Pattern& pattern) {
  const std::string text = pattern.text();
  const auto has = [&](const char* leaf) { return text.find(leaf) != std::string::npos; };
  return has("tokens(") || has("prefix(") || has("documents(") || has("blocks(") || has("keys(") ||
         has("chunks(") || has("rows(");
}

/// Every sequence's own ranges, moved to where the sequence lies.
Pattern moved(const Pattern& pattern, const std::vector<Index>& lengths, Index keys) {
  std::vector<Ranges> seen;
  Index start = 0;
  for (const Index length : lengths) {
    const Pattern own = among(pattern, length);
    for (Index query = 0; query < length; ++query) {
      seen.push_back(own.keys_of(query, {length, length}));
      for (Range& range : seen.back()) range = {range.begin + start, range.end + start};
    }
    start += length;
  }
  return rows(keys, std::move(seen));
}

}  // namespace

SequenceLayout::SequenceLayout(std::vector<Index> lengths) : lengths_(std::move(lengths)) {
  check(!lengths_.empty(), "forward: no sequences, expected at least one");
  for (const Index length : lengths_)
    check(length >= 1, "forward: a sequence of ", length, " tokens, expected at least 1");
  rows_ = std::accumulate(lengths_.begin(), lengths_.end(), Index{0});
  packed_ =
      std::adjacent_find(lengths_.begin(), lengths_.end(), std::not_equal_to<>()) != lengths_.end();
  if (!packed_) return;
  for (const Index length : lengths_)
    for (Index t = 0; t < length; ++t) positions_.push_back(t);
}

Pattern SequenceLayout::apart(const Pattern& pattern) const {
  if (!packed_) return among(pattern, tokens());
  return names_places(pattern) ? moved(pattern, lengths_, rows_) : pattern & documents(lengths_);
}

Pattern SequenceLayout::across(const SequenceLayout& sources) const {
  return packed_ || sources.packed_ ? documents(lengths_, sources.lengths_) : full();
}

std::shared_ptr<const Plan> PlanBook::plan(const Pattern& pattern, Lengths lengths) {
  auto& known = plans_[pattern.text() + '@' + std::to_string(lengths.queries)];
  if (known == nullptr) known = std::make_shared<const Plan>(pattern, lengths);
  return known;
}

}  // namespace rapt
