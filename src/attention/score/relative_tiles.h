#pragma once

#include "base/buffer.h"
#include "kernels/kernels.h"
#include "rapt/plan.h"
#include "rapt/tensor.h"

namespace rapt::detail {

/// A table of relative keys or values, cut into tiles of 64 relative positions (key minus query)
/// and packed once for all heads and threads.
///
/// The tiles are aligned so that 64 queries and 64 keys, which span 127 relative positions, need
/// just two neighbouring table tiles. Positions out of reach repeat the table's end rows; the first
/// and the last tile represent everything that is wholly out of reach.
class RelativeTiles {
 public:
  RelativeTiles(const View& table, Lengths lengths, const Kernels& kernels);

  Index count() const { return last_ - first_ + 3; }
  /// Table tile of positions -distance - 64 .. -distance - 1, and of the 64 positions after them.
  /// `distance` is the position of a tile's first query minus that of its first key.
  Index lower(Index distance) const { return clamped((-distance - start_) / tile - 1); }
  Index upper(Index distance) const { return clamped((-distance - start_) / tile); }
  /// Row of the table behind row r of a tile.
  Index table_row(Index table_tile, Index r) const;

  /// A tile as right operand of products with its rows, and of sums over its rows.
  const float* panels(Index table_tile) const { return panels_.data() + table_tile * tile * dim_; }
  const float* rows(Index table_tile) const { return rows_.data() + table_tile * tile * width_; }
  Index dim() const { return dim_; }
  Index width() const { return width_; }
  bool finite() const { return finite_; }

 private:
  Index clamped(Index tile_of_positions) const;

  Index dim_, width_;
  Index reach_;
  Index start_;         // where tile 0 of the positions begins: 0 .. 63
  Index first_, last_;  // tiles of positions that the reach and the lengths touch
  Buffer<float> panels_, rows_;
  bool finite_ = true;
};

}  // namespace rapt::detail
