#include <algorithm>

#include "base/check.h"
#include "distributed/exchange/load_bytes.h"
#include "distributed/exchange/pair_needs.h"
#include "distributed/exchange/placement_choice.h"
#include "distributed/exchange/query_spans.h"

namespace rapt::distributed {
using namespace rapt::detail;

namespace {

/// Neighbouring tiles of one rank.
struct Run {
  Index begin, end, rank;
};

std::vector<Run> runs_of(const Placement& placement) {
  std::vector<Run> runs;
  for (Index tile = 0; tile < placement.tiles(); ++tile) {
    const Index rank = placement.rank_of_tile(tile);
    if (!runs.empty() && runs.back().rank == rank)
      ++runs.back().end;
    else
      runs.push_back({tile, tile + 1, rank});
  }
  return runs;
}

/// The key tiles of one rank that a span visits.
struct SpanNeeds {
  Index span;
  Ranges keys;
  Index count;
};

class LoadEstimator {
 public:
  LoadEstimator(const Pattern& pattern, const Placement& placement, const ExchangeOptions& options,
                Index queries_of_rank)
      : placement_(placement),
        options_(options),
        queries_of_rank_(queries_of_rank),
        sampler_(pattern, placement.tokens()),
        runs_(runs_of(placement)),
        needs_(placement.ranks()),
        visitors_(placement.ranks()) {}

  ExchangeLoad run(const CallSize& size) {
    ExchangeLoad load{.strict = options_.strict, .estimated = true};
    load.ranks.resize(to_size(placement_.ranks()));
    for (Index rank = 0; rank < placement_.ranks(); ++rank) add_rank(rank, load);
    for (Index rank = 0; rank < placement_.ranks(); ++rank) {
      RankLoad& mine = element(load.ranks, rank);
      mine.messages *= head_ranges(size, mine.tokens);
      set_bytes(mine, visitors_[rank], size, options_.strict);
    }
    load.forward_bytes_needed = load.forward_bytes();
    load.backward_bytes_needed = load.backward_bytes();
    return load;
  }

 private:
  std::vector<QuerySpan> spans_of(Index rank) {
    Index count = 0;
    for (const Run& run : runs_) count += run.rank == rank ? 1 : 0;
    std::vector<QuerySpan> spans;
    for (const Run& run : runs_) {
      if (run.rank != rank) continue;
      auto some = sampler_.spans(run.begin, run.end - run.begin, queries_of_rank_ / count);
      std::move(some.begin(), some.end(), std::back_inserter(spans));
    }
    return spans;
  }

  void add_rank(Index rank, ExchangeLoad& load) {
    RankLoad& mine = element(load.ranks, rank);
    mine.tokens = placement_.tokens(rank);
    const std::vector<QuerySpan> spans = spans_of(rank);
    for (Index i = 0; i < std::ssize(spans); ++i) {
      const QuerySpan& span = element(spans, i);
      mine.pairs += span.pairs;
      mine.computed += span.computed();
      add_needs(rank, i, span);
    }
    load.pairs += mine.pairs;
    for (const QuerySpan& span : spans) load.computed += span.computed();
    for (const Index other : touched_) add_pair(rank, other, spans, load);
    touched_.clear();
  }

  /// Gives the keys of a span to the ranks that have them.
  void add_needs(Index rank, Index number, const QuerySpan& span) {
    for (const Range& range : span.keys) {
      auto run = std::upper_bound(runs_.begin(), runs_.end(), range.begin,
                                  [](Index tile, const Run& r) { return tile < r.end; });
      for (; run != runs_.end() && run->begin < range.end; ++run) {
        if (run->rank == rank) continue;
        std::vector<SpanNeeds>& needs = needs_[run->rank];
        if (needs.empty()) touched_.push_back(run->rank);
        if (needs.empty() || needs.back().span != number) needs.push_back({number, {}, 0});
        const Range some{std::max(range.begin, run->begin), std::min(range.end, run->end)};
        needs.back().keys.push_back(some);
        needs.back().count += some.end - some.begin;
      }
    }
  }

  /// What the queries of a rank need of another one.
  void add_pair(Index rank, Index other, const std::vector<QuerySpan>& spans, ExchangeLoad& load) {
    std::vector<SpanNeeds>& needs = needs_[other];
    std::stable_sort(needs.begin(), needs.end(),
                     [](const SpanNeeds& a, const SpanNeeds& b) { return a.count > b.count; });
    RankLoad &mine = element(load.ranks, rank), &theirs = element(load.ranks, other);
    const std::size_t away = options_.strict ? 0 : travelling(needs, spans);
    Index query_tiles = 0, all_tiles = 0;
    for (std::size_t i = 0; i < needs.size(); ++i) {
      const QuerySpan& span = element(spans, needs[i].span);
      all_tiles += span.tiles;
      if (i >= away) continue;
      query_tiles += span.tiles;
      const double part = static_cast<double>(needs[i].count) /
                          static_cast<double>(std::max<Index>(1, count_keys(span.keys)));
      mine.computed -= span.computed() * part;
      theirs.computed += span.computed() * part;
    }
    const Index keys = union_count(std::span(needs).subspan(away));
    mine.traffic.queries_sent += query_tiles;
    theirs.traffic.queries_received += query_tiles;
    mine.traffic.keys_received += keys;
    theirs.traffic.keys_sent += keys;
    visitors_[rank].queries_sent += all_tiles;
    visitors_[other].queries_received += all_tiles;
    theirs.messages += keys > 0 ? 1 : 0;
    mine.messages += query_tiles > 0 ? 1 : 0;
    needs.clear();
  }

  static Index union_count(std::span<const SpanNeeds> needs) {
    Ranges all;
    for (const SpanNeeds& some : needs) all.insert(all.end(), some.keys.begin(), some.keys.end());
    normalize(all);
    return count_keys(all);
  }

  /// The rule of pair_needs, for spans.
  std::size_t travelling(std::span<const SpanNeeds> needs,
                         const std::vector<QuerySpan>& spans) const {
    const auto cost_of = [&](const SpanNeeds& some) {
      return PairQuestion::worth * static_cast<double>(options_.group) *
             static_cast<double>(element(spans, some.span).tiles);
    };
    // Queries that would not be worth it even if no others saw their keys.
    std::size_t candidates = 0;
    while (candidates < needs.size() &&
           static_cast<double>(needs[candidates].count) >= cost_of(needs[candidates]))
      ++candidates;
    if (candidates == 0) return 0;
    const auto all = static_cast<double>(union_count(needs));
    std::size_t best = 0;
    double cost = 0, most_left = 0;
    for (std::size_t n = 1; n <= candidates; ++n) {
      cost += cost_of(needs[n - 1]);
      const double left = all - static_cast<double>(union_count(needs.subspan(n))) - cost;
      if (left < most_left) continue;
      most_left = left;
      best = n;
    }
    return best;
  }

  const Placement& placement_;
  ExchangeOptions options_;
  Index queries_of_rank_;
  SpanSampler sampler_;
  std::vector<Run> runs_;
  IndexedVector<std::vector<SpanNeeds>> needs_;  // of the rank at hand, by the rank of the keys
  std::vector<Index> touched_;
  IndexedVector<Traffic> visitors_;
};

}  // namespace

ExchangeLoad estimated_load(const Pattern& pattern, const Placement& placement,
                            const ExchangeOptions& options, const CallSize& size,
                            Index queries_of_rank) {
  check(queries_of_rank >= 1, "estimated_load: ", queries_of_rank,
        " queries of each rank given, expected 1 or more");
  return LoadEstimator(pattern, placement, options, queries_of_rank).run(size);
}

Placement estimated_placement(Index tokens, Index ranks, const Pattern& pattern) {
  const Index tiles = divide_up(tokens, Plan::tile);
  const Index granule = std::max<Index>(1, divide_up(tiles, 8 * ranks));
  SpanSampler sampler(pattern, tokens);
  TileCosts tile_costs;
  IndexedVector<double> costs(divide_up(tiles, granule));
  for (Index i = 0; i < std::ssize(costs); ++i)
    for (const QuerySpan& span :
         sampler.spans(i * granule, std::min(granule, tiles - i * granule), 1))
      tile_costs.add(i, span.tiles, span.pairs, span.visits);
  tile_costs.add_to(costs);
  return best_placement(tokens, ranks, granule, costs);
}

}  // namespace rapt::distributed
