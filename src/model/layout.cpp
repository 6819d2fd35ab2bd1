#include "model/layout.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace rapt {

SequenceLayout::SequenceLayout(std::vector<Index> lengths) : lengths_(std::move(lengths)) {
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
  return packed_ ? pattern & documents(lengths_) : pattern;
}

Pattern SequenceLayout::across(const SequenceLayout& sources) const {
  return packed_ || sources.packed_ ? documents(lengths_, sources.lengths_) : full();
}

std::shared_ptr<const Plan> PlanBook::plan(const Pattern& pattern, Lengths lengths) {
  const std::string text = pattern.text();
  if (text.find("lsh") != std::string::npos) return nullptr;  // depends on the numbers
  auto& known = plans_[text + '@' + std::to_string(lengths.queries)];
  if (known == nullptr) known = std::make_shared<const Plan>(pattern, lengths);
  return known;
}

}  // namespace rapt
