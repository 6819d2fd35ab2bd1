#pragma once

#include <algorithm>
#include <span>

#include "rapt/plan.h"

namespace rapt::detail {

/// Walks the runs of a plan in ascending order of tiles.
class VisitCursor {
 public:
  VisitCursor() = default;
  explicit VisitCursor(std::span<const Visit> visits) : visits_(visits) {}

  /// The first visited tile at or after `from`, -1 if there is none. `from` never decreases.
  Index next(Index from) {
    while (at_ < visits_.size() && visits_[at_].first + visits_[at_].count <= from) ++at_;
    return at_ == visits_.size() ? -1 : std::max<Index>(from, visits_[at_].first);
  }
  /// After next(t): whether tile t is visited, and with which mask.
  bool visits(Index t) const { return at_ < visits_.size() && visits_[at_].first <= t; }
  std::int32_t mask() const { return visits_[at_].mask; }
  /// After next(t): whether no tile after t is visited.
  bool ends_at(Index t) const {
    return at_ == visits_.size() ||
           (at_ + 1 == visits_.size() && visits_[at_].first + visits_[at_].count - 1 <= t);
  }

 private:
  std::span<const Visit> visits_;
  std::size_t at_ = 0;
};

/// The first tile at or after `from` that any of the cursors visits, -1 if there is none.
inline Index next_tile(std::span<VisitCursor> cursors, Index from) {
  Index first = -1;
  for (VisitCursor& cursor : cursors) {
    const Index tile = cursor.next(from);
    if (tile >= 0 && (first < 0 || tile < first)) first = tile;
  }
  return first;
}

}  // namespace rapt::detail
