#include "rapt/distributed/placement.h"

#include <algorithm>
#include <cstring>

#include "attention/pattern/pattern_node.h"
#include "base/check.h"
#include "base/indexed_vector.h"
#include "base/sizes.h"
#include "base/views.h"
#include "distributed/exchange/placement_choice.h"
#include "rapt/plan.h"

namespace rapt::distributed {
using namespace rapt::detail;

namespace {

void check_ranks(Index tokens, Index ranks) {
  check(tokens >= 0, "placement: ", tokens, " tokens given, expected 0 or more");
  check(ranks >= 1 && ranks <= 1'000'000, "placement: ", ranks,
        " ranks given, expected 1 to 1,000,000");
}

/// Every granule of tiles to the rank that `rank_of` names for its number.
template <class RankOf>
Placement place_granules(Index tokens, Index ranks, Index granule, const RankOf& rank_of) {
  std::vector<std::int32_t> owners(to_size(divide_up(tokens, Plan::tile)));
  for (Index tile = 0; tile < std::ssize(owners); ++tile)
    element(owners, tile) = static_cast<std::int32_t>(rank_of(tile / granule));
  return {tokens, ranks, std::move(owners)};
}

Placement contiguous(Index tokens, Index ranks, Index granule) {
  check_ranks(tokens, ranks);
  const Index granules = divide_up(divide_up(tokens, Plan::tile), granule);
  return place_granules(tokens, ranks, granule, [&](Index i) { return i * ranks / granules; });
}

Placement zigzag(Index tokens, Index ranks, Index granule) {
  check_ranks(tokens, ranks);
  const Index granules = divide_up(divide_up(tokens, Plan::tile), granule);
  return place_granules(tokens, ranks, granule, [&](Index i) {
    const Index half = i * 2 * ranks / granules;
    return half < ranks ? half : 2 * ranks - 1 - half;
  });
}

}  // namespace

Placement::Placement(Index tokens, Index ranks, std::vector<std::int32_t> rank_of_tile)
    : tokens_(tokens), ranks_(ranks), rank_of_tile_(std::move(rank_of_tile)) {
  check_ranks(tokens, ranks);
  check(tiles() == divide_up(tokens, Plan::tile), "placement: ranks of ", tiles(),
        " tiles given for ", tokens, " tokens, expected ", divide_up(tokens, Plan::tile));
  begins_.assign(to_size(ranks) + 1, 0);
  for (Index tile = 0; tile < tiles(); ++tile) {
    const Index rank = element(rank_of_tile_, tile);
    check(rank >= 0 && rank < ranks, "placement: tile ", tile, " is on rank ", rank,
          ", expected one of ", ranks);
    ++element(begins_, rank + 1);
  }
  for (Index rank = 0; rank < ranks; ++rank) element(begins_, rank + 1) += element(begins_, rank);
  std::vector<Index> next = begins_;
  tiles_.resize(rank_of_tile_.size());
  for (Index tile = 0; tile < tiles(); ++tile)
    element(tiles_, element(next, element(rank_of_tile_, tile))++) = tile;
}

Placement Placement::contiguous(Index tokens, Index ranks) {
  return distributed::contiguous(tokens, ranks, 1);
}
Placement Placement::zigzag(Index tokens, Index ranks) {
  return distributed::zigzag(tokens, ranks, 1);
}

Index Placement::rank_of_tile(Index tile) const {
  check(tile >= 0 && tile < tiles(), "placement: tile ", tile, " asked for, expected one of ",
        tiles());
  return element(rank_of_tile_, tile);
}

std::span<const Index> Placement::tiles(Index rank) const {
  check(rank >= 0 && rank < ranks_, "placement: rank ", rank, " asked for, expected one of ",
        ranks_);
  return std::span(tiles_).subspan(to_size(element(begins_, rank)),
                                   to_size(element(begins_, rank + 1) - element(begins_, rank)));
}

Index Placement::tokens(Index rank) const {
  const std::span<const Index> mine = tiles(rank);
  if (mine.empty()) return 0;
  const Index last = std::min(Plan::tile, tokens_ - mine.back() * Plan::tile);
  return (std::ssize(mine) - 1) * Plan::tile + last;
}

std::vector<Index> Placement::positions(Index rank) const {
  std::vector<Index> all;
  all.reserve(to_size(tokens(rank)));
  for (const Index tile : tiles(rank)) {
    for (Index i = tile * Plan::tile; i < std::min(tokens_, (tile + 1) * Plan::tile); ++i)
      all.push_back(i);
  }
  return all;
}

namespace {

/// Work of each granule of tiles.
IndexedVector<double> granule_costs(Index tokens, Index granule, std::span<const Pattern> patterns,
                                    double token_cost) {
  const Index tiles = divide_up(tokens, Plan::tile);
  IndexedVector<double> costs(divide_up(tiles, granule));
  for (Index tile = 0; tile < tiles; ++tile)
    costs[tile / granule] +=
        token_cost * static_cast<double>(std::min(Plan::tile, tokens - tile * Plan::tile));
  for (const Pattern& pattern : patterns) {
    if (node_of(pattern)->has_lsh()) continue;  // whole heads travel, wherever tokens are
    const Plan plan(pattern, {tokens, tokens});
    TileCosts tile_costs;
    for (Index tile = 0; tile < tiles; ++tile) {
      Index visits = 0;
      for (const Visit& visit : plan.visits(tile)) visits += visit.count;
      tile_costs.add(tile / granule, 1, static_cast<double>(plan.pairs(tile)),
                     static_cast<double>(visits));
    }
    tile_costs.add_to(costs);
  }
  return costs;
}

double heaviest_rank(const Placement& placement, const IndexedVector<double>& costs,
                     Index granule) {
  IndexedVector<double> work(placement.ranks());
  for (Index tile = 0; tile < placement.tiles(); tile += granule)
    work[placement.rank_of_tile(tile)] += costs[tile / granule];
  return *std::max_element(work.begin(), work.end());
}

/// Heaviest granules first, each to the rank that has least to do among those with room for it.
Placement by_weight(Index tokens, Index ranks, Index granule, const IndexedVector<double>& costs) {
  const Index granules = std::ssize(costs);
  IndexedVector<Index> order(granules);
  for (Index i = 0; i < granules; ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](Index a, Index b) { return costs[a] > costs[b]; });
  IndexedVector<double> work(ranks);
  IndexedVector<Index> left(ranks, divide_up(granules, ranks));
  IndexedVector<Index> owners(granules);
  for (const Index i : order) {
    Index best = -1;
    for (Index rank = 0; rank < ranks; ++rank)
      if (left[rank] > 0 && (best < 0 || work[rank] < work[best])) best = rank;
    owners[i] = best;
    work[best] += costs[i];
    --left[best];
  }
  return place_granules(tokens, ranks, granule, [&](Index i) { return owners[i]; });
}

}  // namespace

Placement best_placement(Index tokens, Index ranks, Index granule,
                         const IndexedVector<double>& costs) {
  Placement best = contiguous(tokens, ranks, granule);
  double least = heaviest_rank(best, costs, granule);
  // Neighbouring tokens need each other's keys: another placement has to be clearly better.
  constexpr double worth_sending = 0.97;
  for (Placement other :
       {zigzag(tokens, ranks, granule), by_weight(tokens, ranks, granule, costs)}) {
    const double heaviest = heaviest_rank(other, costs, granule);
    if (heaviest >= least * worth_sending) continue;
    least = heaviest;
    best = std::move(other);
  }
  return best;
}

Placement balanced_placement(Index tokens, Index ranks, std::span<const Pattern> patterns,
                             const PlacementOptions& options) {
  check_ranks(tokens, ranks);
  check(options.granule >= 1, "placement: granule is ", options.granule, ", expected 1 or more");
  // About eight granules for each rank: fewer balance badly, more send more.
  const Index tiles = divide_up(tokens, Plan::tile);
  const Index granule = round_up(std::max<Index>(1, divide_up(tiles, 8 * ranks)), options.granule);
  return best_placement(tokens, ranks, granule,
                        granule_costs(tokens, granule, patterns, options.token_cost));
}

namespace {

/// Calls copy(whole row, shard row, tokens) for every tile of the rank.
template <class Copy>
void for_each_tile(const Placement& placement, Index rank, const Copy& copy) {
  Index row = 0;
  for (const Index tile : placement.tiles(rank)) {
    const Index first = tile * Plan::tile;
    const Index count = std::min(Plan::tile, placement.tokens() - first);
    copy(first, row, count);
    row += count;
  }
}

template <class Copy>
void for_each_row(const AnyView& whole, const Placement& placement, Index rank, const Copy& copy) {
  for (Index item = 0; item < whole.batch(); ++item)
    for (Index head = 0; head < whole.heads(); ++head)
      for_each_tile(placement, rank, [&](Index from, Index to, Index count) {
        for (Index i = 0; i < count; ++i) copy(item, head, from + i, to + i);
      });
}

}  // namespace

Tensor shard(AnyView whole, const Placement& placement, Index rank) {
  check_readable("shard", "the tensor", whole);
  check(whole.tokens() == placement.tokens(), "shard: ", whole.tokens(), " tokens given, expected ",
        placement.tokens(), " as placed");
  Tensor mine = Tensor::uninitialized(
      {whole.batch(), whole.heads(), placement.tokens(rank), whole.dim()}, whole.type());
  const AnyMutableView to(mine);
  const std::size_t bytes = to_size(whole.dim()) * size_of(whole.type());
  for_each_row(whole, placement, rank, [&](Index item, Index head, Index from, Index row) {
    std::memcpy(to.row(item, head, row), whole.row(item, head, from), bytes);
  });
  return mine;
}

void unshard_into(AnyMutableView whole, AnyView shard, const Placement& placement, Index rank) {
  const Shape expected{whole.batch(), whole.heads(), placement.tokens(rank), whole.dim()};
  check_operand("unshard", "the shard", shard, expected);
  check(whole.tokens() == placement.tokens() && whole.type() == shard.type(),
        "unshard: a tensor of ", whole.tokens(), " tokens of ", to_string(whole.type()),
        " given, expected ", placement.tokens(), " of ", to_string(shard.type()));
  const std::size_t bytes = to_size(whole.dim()) * size_of(whole.type());
  for_each_row(whole, placement, rank, [&](Index item, Index head, Index to, Index row) {
    std::memcpy(whole.row(item, head, to), shard.row(item, head, row), bytes);
  });
}

}  // namespace rapt::distributed
