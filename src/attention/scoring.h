#pragma once

#include "attention/call.h"
#include "attention/packed.h"

namespace rapt {

/// Makes the logits of one tile after the other for a tile of queries: product, relative keys, soft-cap, biases. Forward and
/// backward share it, so they see the same bits.
class Scoring {
 public:
  explicit Scoring(const Call& call);

  /// Packs the queries of a tile, times what the rule asks for.
  void take_queries(Index item, Index head, Index query_tile);

  /// Logits [64][64] in units of log2; strips outside the clips stay as they were. `tanh_out` keeps what the soft-cap needs in
  /// backward, if not null.
  void logits(const float* keys, Index key_tile, const Clip* clips, float* scores, float* tanh_out = nullptr);

  Index rows() const { return rows_; }
  Index row_strips() const { return divide_up(rows_, strip); }
  const float* factors() const { return factors_.data(); }
  /// Relative keys as a right operand, 64 of them at a time: [tiles][64 rows in panels].
  Index table_tiles() const { return table_tiles_; }
  static Index table_tiles(const Call& call);

 private:
  void make_band();

  const Call& call_;
  Index item_ = 0, head_ = 0, query_tile_ = 0, rows_ = 0;
  Buffer<float> queries_;  // strips
  Buffer<float> factors_;  // [64]
  Buffer<float> dense_;    // [64][64]
  Index table_tiles_ = 0;
  Buffer<float> table_;  // relative keys in panels, [table_tiles][64 * dim]
  Buffer<float> band_;   // [64][band_stride]: q · relative key, the ends repeated max_lanes times
  Index band_stride_ = 0;
};

}  // namespace rapt
