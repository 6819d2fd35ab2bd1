#pragma once

#include <vector>

#include "base/indexed_vector.h"
#include "rapt/distributed/placement.h"

namespace rapt::detail {

/// Work of tiles of queries, for balancing it. Visited tiles count whole, as the kernels compute
/// them. A tile of few global queries counts as an average one at most: such queries travel to the
/// keys, so every rank has a part of their work.
class TileCosts {
 public:
  /// Of so many neighbouring tiles.
  void add(Index granule, Index tiles, double pairs, double visits);
  void add_to(IndexedVector<double>& granules) const;

 private:
  struct Cost {
    Index granule;
    double computed;
    bool global;
  };
  std::vector<Cost> costs_;
  double sum_ = 0, tiles_ = 0;
};

}  // namespace rapt::detail

namespace rapt::distributed {

/// Contiguous, zigzag or by weight, for the cost of each granule of tiles: the one whose heaviest
/// rank has least to do.
Placement best_placement(Index tokens, Index ranks, Index granule,
                         const detail::IndexedVector<double>& costs);

}  // namespace rapt::distributed
