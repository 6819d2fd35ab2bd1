#pragma once

#include "attention/plan/tile_mask.h"
#include "attention/score/relative_tiles.h"

namespace rapt::detail {

/// Products of a tile of rows with the rows of a table by relative position, added to tiles of
/// scores. Neighbouring tiles share half of them.
class TableBand {
 public:
  /// `table` is null if there is nothing to add.
  TableBand(const RelativeTiles* table, const Kernels& kernels);

  /// Other rows from here on.
  void begin() { held_[0] = held_[1] = -1; }
  /// scores[r][c] += row r · table[position of c - position of r], inside the clips. `strips` holds
  /// `rows` rows; `distance` is the position of row 0 minus that of column 0.
  void add(const float* strips, Index rows, Index distance, const Clip* clips, float* scores);

 private:
  void fill(Index half, Index table_tile, const float* strips, Index rows);

  const RelativeTiles* table_;
  const Kernels& kernels_;
  Buffer<float> band_;        // [64][128]: products with two neighbouring table tiles
  Index held_[2] = {-1, -1};  // which table tiles those are
  Buffer<float> scratch_;     // [64][64]
};

/// Probabilities of a tile by relative position, multiplied with the table: out[64][width]
/// += P · table[position of key - position of query].
class TableAccumulator {
 public:
  TableAccumulator(const RelativeTiles* table, const Kernels& kernels);

  /// `scores` are probabilities inside the clips of `mask`, 0 where it hides a key.
  void add(const float* scores, const TileMask& mask, Index rows, Index distance, float* out);

 private:
  /// [64 queries][64 positions] of one table tile.
  struct Half {
    Buffer<float> sums;
    Buffer<std::uint64_t> seen;  // which of them a visible key touched
  };
  void skew(const float* scores, const TileMask& mask, Index rows);

  const RelativeTiles* table_;
  const Kernels& kernels_;
  Half lower_, upper_;
};

}  // namespace rapt::detail
