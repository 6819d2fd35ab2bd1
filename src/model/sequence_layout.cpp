#include "model/sequence_layout.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace rapt::detail {

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

std::vector<SequenceRun> runs_of(const SequenceLayout& queries, const SequenceLayout& keys) {
  std::vector<SequenceRun> runs;
  for (std::size_t i = 0; i < queries.lengths().size(); ++i) {
    const Index tokens = queries.lengths()[i], seen = keys.lengths()[i];
    if (runs.empty() || runs.back().tokens != tokens || runs.back().keys != seen)
      runs.push_back({static_cast<Index>(i), 0, tokens, seen});
    ++runs.back().items;
  }
  return runs;
}

std::shared_ptr<const Plan> PlanBook::plan(const Pattern& pattern, Lengths lengths) {
  auto& known = plans_[to_string(pattern) + '@' + std::to_string(lengths.queries) + ',' +
                       std::to_string(lengths.keys)];
  if (known == nullptr) known = std::make_shared<const Plan>(pattern, lengths);
  return known;
}

}  // namespace rapt::detail
