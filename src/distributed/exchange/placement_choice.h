#pragma once

#include "base/indexed_vector.h"
#include "rapt/distributed/placement.h"

namespace rapt::distributed {

/// Contiguous, zigzag or by weight, for the cost of each granule of tiles: the one whose heaviest
/// rank has least to do.
Placement best_placement(Index tokens, Index ranks, Index granule,
                         const detail::IndexedVector<double>& costs);

}  // namespace rapt::distributed
