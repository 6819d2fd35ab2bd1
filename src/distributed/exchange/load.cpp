#include <algorithm>

#include "base/check.h"
#include "distributed/exchange/exchange_parts.h"
#include "distributed/exchange/load_bytes.h"
#include "distributed/exchange/pair_needs.h"

namespace rapt::distributed {
namespace {

Index visited_tiles(const Plan& plan, Index query_tile) {
  Index tiles = 0;
  for (const Visit& visit : plan.visits(query_tile)) tiles += visit.count;
  return tiles;
}

double computed_by_one(const Plan& plan) {
  double pairs = 0;
  for (Index tile = 0; tile < plan.query_tiles(); ++tile)
    pairs += computed_pairs(static_cast<double>(plan.pairs(tile)),
                            static_cast<double>(visited_tiles(plan, tile)));
  return pairs;
}

double computed_in_part(const Plan& whole, const RankPart& part) {
  double pairs = 0;
  for (Index i = 0; i < std::ssize(part.tiles.queries.numbers); ++i) {
    const Index tile = part.tiles.queries.numbers[i];
    const auto all = static_cast<double>(visited_tiles(whole, tile));
    const auto here = static_cast<double>(visited_tiles(*part.plan, i));
    if (all > 0) pairs += computed_pairs(static_cast<double>(whole.pairs(tile)) * here / all, here);
  }
  return pairs;
}

Index tiles_of(const std::vector<PeerTiles>& peers) {
  Index tiles = 0;
  for (const PeerTiles& peer : peers) tiles += std::ssize(peer.tiles);
  return tiles;
}

RankLoad load_of_rank(const Exchange& exchange, Index rank, const CallSize& size) {
  const Exchange::Impl& impl = impl_of(exchange);
  const RankParts& parts = impl.parts(rank);
  RankLoad load{.tokens = impl.queries.tokens(rank)};
  for (const Index tile : impl.queries.tiles(rank))
    load.pairs += static_cast<double>(impl.plan->pairs(tile));
  load.computed = computed_in_part(*impl.plan, parts.own);
  if (!impl.options.strict) load.computed += computed_in_part(*impl.plan, parts.guests);
  load.traffic = exchange.traffic(rank);
  load.messages = std::ssize(parts.own.keys.out) * head_ranges(size, load.tokens) +
                  std::ssize(parts.guests.queries.out) + std::ssize(parts.guests.queries.in);
  const TileTransfer& visitors = parts.backward.queries;
  set_bytes(load, {0, 0, tiles_of(visitors.out), tiles_of(visitors.in)}, size, impl.options.strict);
  return load;
}

double bytes_needed(const Exchange::Impl& impl, const TileBytes& bytes) {
  double needed = 0;
  for (Index key_rank = 0; key_rank < impl.keys.ranks(); ++key_rank) {
    const Ranges runs = tile_runs(impl.keys, key_rank);
    for (Index query_rank = 0; query_rank < impl.queries.ranks(); ++query_rank)
      if (query_rank != key_rank)
        needed += bytes.keys() * least_cost({*impl.plan, impl.queries.tiles(query_rank), runs,
                                             bytes.queries() / bytes.keys(), false});
  }
  return needed;
}

}  // namespace

ExchangeLoad load_of(const Exchange& exchange, const CallSize& size) {
  const Exchange::Impl& impl = impl_of(exchange);
  check(!impl.hashed, "load_of: ", to_string(impl.pattern),
        " depends on the numbers, expected a pattern without lsh");
  ExchangeLoad load{.strict = impl.options.strict};
  for (Index rank = 0; rank < impl.queries.ranks(); ++rank)
    load.ranks.push_back(load_of_rank(exchange, rank, size));
  load.pairs = static_cast<double>(impl.plan->pairs());
  load.computed = computed_by_one(*impl.plan);
  if (load.strict) {
    load.forward_bytes_needed = load.forward_bytes();
    load.backward_bytes_needed = load.backward_bytes();
  } else {
    load.forward_bytes_needed = bytes_needed(impl, forward_tile_bytes(size));
    load.backward_bytes_needed = bytes_needed(impl, backward_tile_bytes(size, false));
  }
  return load;
}

}  // namespace rapt::distributed
