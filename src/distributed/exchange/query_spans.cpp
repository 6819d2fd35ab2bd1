#include "distributed/exchange/query_spans.h"

#include <algorithm>

#include "distributed/exchange/load_bytes.h"
#include "rapt/plan.h"

namespace rapt::detail {
namespace {

/// From the first to the last of two lists of as many ranges, one by one.
Ranges hull(const Ranges& a, const Ranges& b) {
  Ranges all;
  for (std::size_t i = 0; i < a.size(); ++i)
    all.push_back({std::min(a[i].begin, b[i].begin), std::max(a[i].end, b[i].end)});
  normalize(all);
  return all;
}

Ranges united(const Ranges& a, const Ranges& b) {
  Ranges all = a;
  all.insert(all.end(), b.begin(), b.end());
  normalize(all);
  return all;
}

Ranges joined(const Ranges& a, const Ranges& b) {
  return a.size() == b.size() ? hull(a, b) : united(a, b);
}

Ranges in_tiles(const Ranges& keys) {
  Ranges tiles;
  for (const Range& range : keys)
    tiles.push_back({range.begin / Plan::tile, divide_up(range.end, Plan::tile)});
  normalize(tiles);
  return tiles;
}

}  // namespace

double QuerySpan::computed() const { return computed_pairs(pairs, visits); }

SpanSampler::SpanSampler(const Pattern& pattern, Index tokens)
    : node_(*node_of(pattern)),
      pattern_(pattern),
      lengths_{tokens, tokens},
      scratch_(scratch_for(node_)) {
  pattern.check(lengths_);
}

const Ranges& SpanSampler::keys_of(Index query) {
  node_.keys_of(query_position(query, lengths_), scratch_, keys_);
  return keys_;
}

/// Every step-th query of a tile, and the last one.
SpanSampler::TileSample SpanSampler::sample(Index tile, Index step) {
  const Index first = tile * Plan::tile;
  const Index end = std::min(first + Plan::tile, lengths_.queries);
  TileSample sample;
  Index looked = 0;
  for (Index query = first; query < end;
       query = query == end - 1 ? end : std::min(query + step, end - 1)) {
    const Ranges& keys = keys_of(query);
    sample.pairs += static_cast<double>(count_keys(keys));
    sample.keys = looked++ == 0 ? in_tiles(keys) : joined(sample.keys, in_tiles(keys));
  }
  sample.pairs *=
      static_cast<double>(end - first) / static_cast<double>(std::max<Index>(1, looked));
  sample.visits = static_cast<double>(count_keys(sample.keys));
  return sample;
}

void SpanSampler::add(Index first, Index tiles, Index splits, std::vector<QuerySpan>& spans) {
  if (tiles <= 0) return;
  if (tiles == 1) {
    TileSample one = sample(first, 1);
    spans.push_back({first, 1, std::move(one.keys), one.visits, one.pairs});
    return;
  }
  const TileSample a = sample(first, Plan::tile), b = sample(first + tiles - 1, Plan::tile);
  if (a.keys.size() != b.keys.size() && splits > 0) {
    add(first, tiles / 2, splits - 1, spans);
    add(first + tiles / 2, tiles - tiles / 2, splits - 1, spans);
    return;
  }
  const double half = static_cast<double>(tiles) / 2;
  spans.push_back({first, tiles, joined(a.keys, b.keys), half * (a.visits + b.visits),
                   half * (a.pairs + b.pairs)});
}

std::vector<QuerySpan> SpanSampler::spans(Index first, Index tiles, Index pieces) {
  constexpr Index most_splits = 24;
  pieces = std::clamp<Index>(pieces, 1, std::max<Index>(1, tiles));
  // Keys that all see, as global tokens are, are at the ends of ranges; as queries they see all.
  std::vector<Index> cuts;
  for (Index i = 0; i <= pieces; ++i) cuts.push_back(first + i * tiles / pieces);
  const auto cut_at = [&](Index tile) {
    if (tile > first && tile < first + tiles) cuts.push_back(tile);
  };
  for (const Range& range : sample(first + tiles / 2, Plan::tile).keys) {
    for (const Index edge : {range.begin, range.begin + 1, range.end - 1, range.end}) cut_at(edge);
  }
  std::sort(cuts.begin(), cuts.end());
  std::vector<QuerySpan> spans;
  for (std::size_t i = 1; i < cuts.size(); ++i)
    add(cuts[i - 1], cuts[i] - cuts[i - 1], most_splits, spans);
  return spans;
}

}  // namespace rapt::detail
