#pragma once

#include "attention/call.h"

namespace rapt::detail {

/// Neighbouring key tiles that are one task of backward. A part of a call has the groups of the
/// whole call, without the tiles that are elsewhere: so sums over keys are cut alike.
class KeyGroups {
 public:
  KeyGroups(const Call& call, Index tiles);

  Index count() const { return count_; }
  Index begin(Index group) const { return begins_.empty() ? group * tiles_ : begins_[group]; }
  Index end(Index group) const {
    return begins_.empty() ? std::min((group + 1) * tiles_, key_tiles_) : begins_[group + 1];
  }
  /// The group of a key tile.
  Index of(Index key_tile) const {
    return begins_.empty() ? key_tile / tiles_ : group_of_[key_tile];
  }
  /// Tiles of the largest group.
  Index tiles() const { return tiles_; }

 private:
  Index tiles_, key_tiles_, count_;
  IndexedVector<Index> begins_, group_of_;  // empty for a whole call
};

}  // namespace rapt::detail
