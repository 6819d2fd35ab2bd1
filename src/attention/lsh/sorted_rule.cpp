#include "attention/lsh/sorted_rule.h"

#include <algorithm>

#include "attention/lsh/lsh_order.h"
#include "attention/pattern/pattern_node.h"
#include "attention/score/score_rule.h"
#include "base/indexed_vector.h"
#include "base/sizes.h"

namespace rapt::detail {

PositionRanges::PositionRanges(const Pattern& pattern, Lengths lengths) : first_(lengths.queries) {
  pattern.check(lengths);
  std::vector<Ranges> scratch = scratch_for(*node_of(pattern));
  IndexedVector<Index> steps(lengths.keys + 1);  // +1 where a range begins, -1 where one ends
  Ranges ranges;
  for (Index query = 0; query < lengths.queries; ++query) {
    node_of(pattern)->keys_of(query_position(query, lengths), scratch, ranges);
    if (ranges.empty()) continue;
    first_[query] = {static_cast<std::int32_t>(ranges[0].begin),
                     static_cast<std::int32_t>(ranges[0].end)};
    if (ranges.size() > 1) {
      if (more_.empty()) more_.resize(lengths.queries);
      more_[query].assign(ranges.begin() + 1, ranges.end());
    }
    for (const Range& range : ranges) ++steps[range.begin], --steps[range.end];
  }
  find_padding(steps);
}

void PositionRanges::find_padding(const IndexedVector<Index>& steps) {
  padding_.resize(steps.size() - 1);
  bool any = false;
  Index seen = 0;
  for (std::size_t key = 0; key < padding_.size(); ++key) {
    seen += steps[key];
    padding_[key] = seen == 0;
    any |= seen == 0;
  }
  if (!any) padding_.clear();
}

SortedRule::SortedRule(const Kernels& kernels, const PositionRanges& ranges, const Lsh& lsh,
                       const LshOrder& order)
    : kernels_(kernels),
      ranges_(ranges),
      rewrite_self_(lsh.keys == Lsh::Keys::shared),
      weights_(lsh, order) {}

namespace {

constexpr double self_natural = -1e5;
constexpr double far_below = self_natural / 2;  // smaller than any other logit of a trained model

}  // namespace

bool SortedRule::alone(double natural_number) { return natural_number < far_below; }

double SortedRule::natural(float log2_number) {
  const auto x = static_cast<double>(log2_number);
  if (!alone(x * ln_2)) return x * ln_2;
  return self_natural + (x - static_cast<double>(self_logit)) * ln_2;
}

double SortedRule::in_log2(double natural_number) {
  if (!alone(natural_number)) return natural_number * log2_e;
  return static_cast<double>(self_logit) + (natural_number - self_natural) * log2_e;
}

void SortedRule::load(const std::int32_t* queries, const std::int32_t* keys, Index sorted_count) {
  weights_.load(queries, keys);
  const Index padded = round_up(sorted_count, tile);
  queries_.assign(padded, LshOrder::none);
  keys_.assign(padded, LshOrder::none);
  lows_.assign(padded, 0);
  highs_.assign(padded, 0);
  std::copy_n(queries, sorted_count, queries_.begin());
  std::copy_n(keys, sorted_count, keys_.begin());
  for (Index s = 0; s < sorted_count; ++s) {
    if (queries_[s] < 0) continue;
    lows_[s] = ranges_.low(queries_[s]);
    highs_[s] = ranges_.high(queries_[s]);
  }
}

void SortedRule::add_more(Index sorted_index, const std::int32_t* keys, std::uint64_t& word) const {
  const std::int32_t position = queries_[sorted_index];
  const Ranges* more = position < 0 ? nullptr : ranges_.more(position);
  if (more == nullptr || more->empty()) return;
  for (Index c = 0; c < tile; ++c) {
    const auto after = std::upper_bound(more->begin(), more->end(), Index{keys[c]},
                                        [](Index key, const Range& r) { return key < r.begin; });
    if (after != more->begin() && keys[c] < std::prev(after)->end) word |= std::uint64_t{1} << c;
  }
}

bool SortedRule::restrict(Index query_tile, Index key_tile, Index rows, std::uint64_t* visible,
                          std::uint64_t* self) const {
  const Index first = query_tile * tile;
  const std::int32_t* keys = keys_.data() + key_tile * tile;
  std::uint64_t allowed[tile];
  kernels_.lsh.sorted_masks(queries_.data() + first, lows_.data() + first, highs_.data() + first,
                            rows, keys, allowed, self);
  bool cleared = false;
  for (Index r = 0; r < rows; ++r) {
    add_more(first + r, keys, allowed[r]);
    self[r] = rewrite_self_ ? self[r] & visible[r] : 0;
    const std::uint64_t kept = visible[r] & (allowed[r] | self[r]);
    cleared |= kept != visible[r];
    visible[r] = kept;
  }
  std::fill(self + rows, self + tile, std::uint64_t{0});
  return cleared;
}

}  // namespace rapt::detail
