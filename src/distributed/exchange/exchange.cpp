#include "rapt/distributed/exchange.h"

#include <algorithm>

#include "attention/pattern/pattern_node.h"
#include "base/check.h"
#include "distributed/exchange/exchange_parts.h"
#include "distributed/exchange/pair_needs.h"
#include "distributed/exchange/part_builder.h"

namespace rapt::distributed {
namespace {

using Tiles = IndexedVector<Index>;

PeerTiles peer_tiles(Index peer, const Tiles& tiles, Index tokens) {
  Index count = 0;
  for (const Index tile : tiles) count += std::min(Plan::tile, tokens - tile * Plan::tile);
  return {peer, tiles, count};
}

/// Builds what one rank computes out of what every pair of ranks needs.
class PartsBuilder {
 public:
  PartsBuilder(const Exchange::Impl& exchange, Index rank)
      : exchange_(exchange),
        rank_(rank),
        lengths_(exchange.plan->lengths()),
        to_others_(exchange.queries.ranks()),
        to_this_(exchange.queries.ranks()) {
    for (Index other = 0; other < exchange.queries.ranks(); ++other) {
      if (other == rank) continue;
      to_others_[other] = needs(rank, other);
      to_this_[other] = needs(other, rank);
    }
  }

  std::unique_ptr<const RankParts> build() const {
    auto parts = std::make_unique<RankParts>();
    const TileTransfer keys = key_transfer();
    parts->own.keys = keys;
    fill(parts->own, true, [this](Index tile, Index key_rank) { return pulls(tile, key_rank); });
    if (exchange_.options.strict) {
      parts->backward.queries = all_visitors();
    } else {
      parts->guests.queries = parts->backward.queries = guest_transfer();
      parts->backward.keys = keys;
      fill(parts->guests, false, [this](Index, Index key_rank) { return key_rank == rank_; });
    }
    fill(parts->backward, true, [this](Index tile, Index key_rank) {
      return key_rank == rank_ ||
             (!exchange_.options.strict && is_own(tile) && pulls(tile, key_rank));
    });
    return parts;
  }

 private:
  PairNeeds needs(Index query_rank, Index key_rank) const {
    return pair_needs({*exchange_.plan, exchange_.queries.tiles(query_rank),
                       tile_runs(exchange_.keys, key_rank),
                       static_cast<double>(exchange_.options.group), exchange_.options.strict});
  }

  bool is_own(Index query_tile) const {
    return exchange_.queries.rank_of_tile(query_tile) == rank_;
  }

  /// Whether an own query tile meets the keys of a rank here.
  bool pulls(Index query_tile, Index key_rank) const {
    const Tiles& away = to_others_[key_rank].queries;
    return !std::binary_search(away.begin(), away.end(), query_tile);
  }

  void add(std::vector<PeerTiles>& to, Index peer, const Tiles& tiles, Index tokens) const {
    if (!tiles.empty()) to.push_back(peer_tiles(peer, tiles, tokens));
  }

  TileTransfer key_transfer() const {
    TileTransfer keys;
    for (Index other = 0; other < std::ssize(to_this_); ++other) {
      add(keys.in, other, to_others_[other].keys, lengths_.keys);
      add(keys.out, other, to_this_[other].keys, lengths_.keys);
    }
    return keys;
  }

  TileTransfer guest_transfer() const {
    TileTransfer queries;
    for (Index other = 0; other < std::ssize(to_this_); ++other) {
      add(queries.in, other, to_this_[other].queries, lengths_.queries);
      add(queries.out, other, to_others_[other].queries, lengths_.queries);
    }
    return queries;
  }

  /// Query tiles of one rank that see any key of another.
  Tiles visitors(Index query_rank, Index key_rank) const {
    const Ranges runs = tile_runs(exchange_.keys, key_rank);
    Tiles tiles;
    for (const Index tile : exchange_.queries.tiles(query_rank)) {
      const PairNeeds some = pair_needs({*exchange_.plan, {&tile, 1}, runs, 1, true});
      if (!some.keys.empty()) tiles.push_back(tile);
    }
    return tiles;
  }

  TileTransfer all_visitors() const {
    TileTransfer queries;
    for (Index other = 0; other < std::ssize(to_this_); ++other) {
      if (other == rank_) continue;
      add(queries.in, other, visitors(other, rank_), lengths_.queries);
      add(queries.out, other, visitors(rank_, other), lengths_.queries);
    }
    return queries;
  }

  /// Tiles and plan of a part whose transfers are set.
  void fill(RankPart& part, bool own_queries, const MaySee& may_see) const {
    PartTilesBuilder queries(exchange_.queries), keys(exchange_.keys);
    if (own_queries) queries.add_own(rank_);
    keys.add_own(rank_);
    for (Index i = 0; i < std::ssize(part.queries.in); ++i)
      queries.add_received(element(part.queries.in, i), i);
    for (Index i = 0; i < std::ssize(part.keys.in); ++i)
      keys.add_received(element(part.keys.in, i), i);
    part.tiles.whole = lengths_;
    part.tiles.queries = queries.finish();
    part.tiles.keys = keys.finish();
    part.plan = plan_of_part(*exchange_.plan, part.tiles, exchange_.keys, may_see);
  }

  const Exchange::Impl& exchange_;
  Index rank_;
  Lengths lengths_;
  IndexedVector<PairNeeds> to_others_;  // of this rank's queries, by the rank of the keys
  IndexedVector<PairNeeds> to_this_;    // of other ranks' queries
};

Index tiles_in(const std::vector<PeerTiles>& peers) {
  Index count = 0;
  for (const PeerTiles& peer : peers) count += std::ssize(peer.tiles);
  return count;
}

}  // namespace

Exchange::Impl::Impl(const Pattern& pattern_, const Placement& queries_, const Placement& keys_,
                     const ExchangeOptions& options_)
    : queries(queries_),
      keys(keys_),
      options(options_),
      hashed(node_of(pattern_)->has_lsh()),
      pattern(pattern_),
      parts_(queries_.ranks()) {
  check(queries.ranks() == keys.ranks(), "exchange: queries are on ", queries.ranks(),
        " ranks and keys on ", keys.ranks(), ", expected the same number");
  check(options.group >= 1, "exchange: group is ", options.group, ", expected 1 or more");
  if (!hashed)
    plan = std::make_shared<const Plan>(pattern, Lengths{queries.tokens(), keys.tokens()});
}

const RankParts& Exchange::Impl::parts(Index rank) const {
  check(rank >= 0 && rank < queries.ranks(), "exchange: rank ", rank,
        " asked for, expected one of ", queries.ranks());
  check(!hashed, "exchange: an lsh pattern sends whole heads, not tiles");
  {
    const std::lock_guard lock(mutex_);
    if (parts_[rank] != nullptr) return *parts_[rank];
  }
  std::unique_ptr<const RankParts> made = PartsBuilder(*this, rank).build();
  const std::lock_guard lock(mutex_);
  if (parts_[rank] == nullptr) parts_[rank] = std::move(made);
  return *parts_[rank];
}

Exchange::Exchange(const Pattern& pattern, const Placement& placement,
                   const ExchangeOptions& options)
    : Exchange(pattern, placement, placement, options) {}

Exchange::Exchange(const Pattern& pattern, const Placement& queries, const Placement& keys,
                   const ExchangeOptions& options)
    : impl_(std::make_shared<const Impl>(pattern, queries, keys, options)) {}

const Pattern& Exchange::pattern() const { return impl_->pattern; }
const Placement& Exchange::queries() const { return impl_->queries; }
const Placement& Exchange::keys() const { return impl_->keys; }
const ExchangeOptions& Exchange::options() const { return impl_->options; }

Traffic Exchange::traffic(Index rank) const {
  if (impl_->hashed) return {};
  const RankParts& parts = impl_->parts(rank);
  return {tiles_in(parts.own.keys.out), tiles_in(parts.own.keys.in),
          tiles_in(parts.guests.queries.out), tiles_in(parts.guests.queries.in)};
}

}  // namespace rapt::distributed
