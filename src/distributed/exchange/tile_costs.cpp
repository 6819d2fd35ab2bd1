#include <algorithm>

#include "distributed/exchange/load_bytes.h"
#include "distributed/exchange/placement_choice.h"

namespace rapt::detail {

void TileCosts::add(Index granule, Index tiles, double pairs, double visits) {
  constexpr double few_rows = 0.25;
  const double computed = computed_pairs(pairs, visits);
  costs_.push_back({granule, computed, tiles == 1 && computed < few_rows * whole_pairs(visits)});
  sum_ += computed;
  tiles_ += static_cast<double>(tiles);
}

void TileCosts::add_to(IndexedVector<double>& granules) const {
  const double average = tiles_ == 0 ? 0 : sum_ / tiles_;
  for (const Cost& cost : costs_)
    granules[cost.granule] += cost.global ? std::min(cost.computed, average) : cost.computed;
}

}  // namespace rapt::detail
