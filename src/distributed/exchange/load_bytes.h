#pragma once

#include "rapt/distributed/prediction.h"

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

/// Pairs that the kernels compute for a tile of queries: visited tiles count whole, but one of few
/// pairs, as of one global query, costs little more than its rows.
inline double computed_pairs(double pairs, double visited_tiles) {
  const double whole = visited_tiles * 4096;
  return whole < 2 * pairs ? whole : 2 * pairs;
}

}  // namespace rapt::detail
