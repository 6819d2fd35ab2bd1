#pragma once

#include "attention/pattern/ranges.h"
#include "base/indexed_vector.h"
#include "rapt/distributed/placement.h"
#include "rapt/plan.h"

namespace rapt::detail {

/// Neighbouring tiles of one rank, as ranges of tile numbers.
Ranges tile_runs(const distributed::Placement& placement, Index rank);

/// What the queries of one rank need of the keys of another.
struct PairNeeds {
  IndexedVector<Index> keys;     // tiles that travel to the queries
  IndexedVector<Index> queries;  // tiles that travel to the keys instead
};

struct PairQuestion {
  /// With a query its work travels, so it has to save so many times what it costs.
  static constexpr double worth = 8;

  const Plan& plan;
  std::span<const Index> query_tiles;  // of the rank that has the queries
  const Ranges& key_runs;              // of the rank that has the keys
  double query_cost;                   // of sending a query tile; a key tile costs 1
  bool keys_only;
};

/// Keys travel to the queries, except where a few queries see so many keys that no others see
/// (global tokens, or a short prompt over a long cache) that sending these queries saves most of
/// the bytes.
PairNeeds pair_needs(const PairQuestion& question);

/// What no choice of tiles can cost less than: for each visit its query tile or its key tile has to
/// travel. The weight of a matching between them, found greedily.
double least_cost(const PairQuestion& question);

}  // namespace rapt::detail
