#pragma once

#include <algorithm>

#include "rapt/distributed/prediction.h"
#include "rapt/plan.h"

namespace rapt::detail {

using distributed::CallSize;
using distributed::ExchangeLoad;
using distributed::RankLoad;
using distributed::Traffic;

/// Bytes of one tile of all heads, on its way to another rank and back.
struct TileBytes {
  double keys_out, keys_back;
  double queries_out, queries_back;

  double keys() const { return keys_out + keys_back; }
  double queries() const { return queries_out + queries_back; }
};

TileBytes forward_tile_bytes(const CallSize& size);
TileBytes backward_tile_bytes(const CallSize& size, bool strict);

/// Heads travel in so many messages to each peer.
Index head_ranges(const CallSize& size, Index tokens_of_rank);

/// Sets the bytes of a rank. Backward, a strict exchange sends queries that stay where they are
/// forward: `visitors` are those tiles.
void set_bytes(RankLoad& rank, const Traffic& visitors, const CallSize& size, bool strict);

/// Pairs of so many tiles.
inline double whole_pairs(double tiles) {
  return tiles * static_cast<double>(Plan::tile * Plan::tile);
}

/// Pairs that the kernels compute for a tile of queries: visited tiles count whole, but one of few
/// pairs, as of one global query, costs little more than its rows.
inline double computed_pairs(double pairs, double visited_tiles) {
  return std::min(whole_pairs(visited_tiles), 2 * pairs);
}

}  // namespace rapt::detail
