#include "distributed/exchange/pair_needs.h"

#include <algorithm>

namespace rapt::detail {
namespace {

/// Runs of a query tile's visits that are among `runs`.
Ranges visits_among(std::span<const Visit> visits, const Ranges& runs) {
  Ranges among;
  auto run = runs.begin();
  for (const Visit& visit : visits) {
    const Range wanted{visit.first, visit.first + visit.count};
    run = std::lower_bound(run, runs.end(), wanted.begin,
                           [](const Range& r, Index first) { return r.end <= first; });
    for (auto at = run; at != runs.end() && at->begin < wanted.end; ++at)
      among.push_back({std::max(at->begin, wanted.begin), std::min(at->end, wanted.end)});
  }
  return among;
}

struct QueryNeeds {
  Index tile;
  Ranges keys;
  Index key_count;
};

std::vector<QueryNeeds> needs_of_queries(const PairQuestion& question) {
  std::vector<QueryNeeds> queries;
  for (const Index tile : question.query_tiles) {
    Ranges keys = visits_among(question.plan.visits(tile), question.key_runs);
    if (keys.empty()) continue;
    const Index n = count_keys(keys);
    queries.push_back({tile, std::move(keys), n});
  }
  return queries;
}

/// Of the queries from `first` on.
Ranges union_of(std::span<const QueryNeeds> queries) {
  Ranges all;
  for (const QueryNeeds& query : queries)
    all.insert(all.end(), query.keys.begin(), query.keys.end());
  normalize(all);
  return all;
}

/// How many of the queries, which are ordered by falling need, should travel. With a query its work
/// travels, so it has to save much more than it costs: ranks stay balanced as they were placed.
std::size_t travelling(std::span<const QueryNeeds> queries, double query_cost) {
  const auto all = static_cast<double>(count_keys(union_of(queries)));
  std::size_t best = 0;
  double most_saved = 0;
  const auto consider = [&](std::size_t n) {
    const double saved = all - static_cast<double>(count_keys(union_of(queries.subspan(n))));
    if (n <= best ||
        saved - most_saved < PairQuestion::worth * query_cost * static_cast<double>(n - best))
      return;
    most_saved = saved;
    best = n;
  };
  for (std::size_t n = 1; n < queries.size(); n *= 2) consider(n);
  consider(queries.size());
  // Between two powers of two: where the need falls most.
  for (std::size_t n = best / 2 + 1, end = std::min(queries.size(), best * 2); n < end; ++n)
    if (queries[n - 1].key_count > 2 * queries[n].key_count) consider(n);
  return best;
}

}  // namespace

namespace {

/// Key tiles with what is left of the cost of each; those with nothing left are skipped at once.
class KeysLeft {
 public:
  explicit KeysLeft(const Ranges& tiles) : tiles_(tiles) {
    for (const Range& run : tiles) {
      begins_.push_back(count_);
      count_ += run.end - run.begin;
    }
    left_.assign(count_, 1.0);
    for (Index i = 0; i <= count_; ++i) next_.push_back(i);
  }

  /// Takes up to `most` from the tiles of a range, which is inside one run.
  double take(const Range& range, double most) {
    const auto run = std::upper_bound(tiles_.begin(), tiles_.end(), range.begin,
                                      [](Index tile, const Range& r) { return tile < r.end; });
    const Index first = begins_[run - tiles_.begin()] + range.begin - run->begin;
    double taken = 0;
    for (Index i = find(first); i < first + range.end - range.begin && taken < most; i = find(i)) {
      const double some = std::min(left_[i], most - taken);
      taken += some;
      left_[i] -= some;
      if (left_[i] <= 0) next_[i] = i + 1;
    }
    return taken;
  }

 private:
  Index find(Index i) {
    while (next_[i] != i) i = next_[i] = next_[next_[i]];
    return i;
  }

  const Ranges& tiles_;
  IndexedVector<Index> begins_, next_;
  IndexedVector<double> left_;
  Index count_ = 0;
};

}  // namespace

Ranges tile_runs(const distributed::Placement& placement, Index rank) {
  Ranges runs;
  for (const Index tile : placement.tiles(rank)) {
    if (!runs.empty() && runs.back().end == tile)
      ++runs.back().end;
    else
      runs.push_back({tile, tile + 1});
  }
  return runs;
}

PairNeeds pair_needs(const PairQuestion& question) {
  std::vector<QueryNeeds> queries = needs_of_queries(question);
  std::stable_sort(queries.begin(), queries.end(), [](const QueryNeeds& a, const QueryNeeds& b) {
    return a.key_count > b.key_count;
  });
  const std::size_t n = question.keys_only ? 0 : travelling(queries, question.query_cost);
  PairNeeds needs;
  for (std::size_t i = 0; i < n; ++i) needs.queries.push_back(queries[i].tile);
  std::sort(needs.queries.begin(), needs.queries.end());
  for (const Range& run : union_of(std::span(queries).subspan(n)))
    for (Index tile = run.begin; tile < run.end; ++tile) needs.keys.push_back(tile);
  return needs;
}

double least_cost(const PairQuestion& question) {
  std::vector<QueryNeeds> queries = needs_of_queries(question);
  const Ranges keys = union_of(queries);
  if (question.keys_only) return static_cast<double>(count_keys(keys));
  // Those with the fewest keys to choose from first.
  std::stable_sort(queries.begin(), queries.end(), [](const QueryNeeds& a, const QueryNeeds& b) {
    return a.key_count < b.key_count;
  });
  KeysLeft left(keys);
  double cost = 0;
  for (const QueryNeeds& query : queries) {
    double most = question.query_cost;
    for (const Range& range : query.keys) most -= left.take(range, most);
    cost += question.query_cost - most;
  }
  return cost;
}

}  // namespace rapt::detail
