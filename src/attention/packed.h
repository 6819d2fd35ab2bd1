#pragma once

#include <vector>

#include "attention/call.h"

namespace rapt {

/// Keys and values of every (batch item, key head) in the layout the kernels read, one tile after
/// the other. Tiles that no query visits are left out of the work, not out of the layout.
class PackedKeys {
 public:
  explicit PackedKeys(const Call& call);

  const float* keys(Index item, Index kv_head, Index key_tile) const {
    return keys_.data() + place(item, kv_head, key_tile) * tile * dim_;
  }
  const float* values(Index item, Index kv_head, Index key_tile) const {
    return values_.data() + place(item, kv_head, key_tile) * tile * width_;
  }
  /// False if a value of the tile is NaN or infinite: 0 * value is then not 0, and hidden keys need
  /// care.
  bool finite(Index item, Index kv_head, Index key_tile) const {
    return finite_[place(item, kv_head, key_tile)];
  }

 private:
  Index place(Index item, Index kv_head, Index key_tile) const {
    return (item * kv_heads_ + kv_head) * tiles_ + key_tile;
  }
  void pack(const Call& call, Index item, Index kv_head, Index key_tile);

  Index kv_heads_, tiles_, dim_, width_;
  Buffer<float> keys_, values_;
  Buffer<bool> finite_;
};

/// Which key tiles any query visits.
std::vector<Index> visited_key_tiles(const Plan& plan);

/// Columns of a masked tile that each strip of rows touches, in whole vectors.
void clip_strips(std::span<const std::uint64_t, tile> mask, Index lanes, Clips& clips);
/// Query rows of a masked tile that each strip of key columns touches.
void clip_columns(std::span<const std::uint64_t, tile> mask, Clips& clips);

}  // namespace rapt
