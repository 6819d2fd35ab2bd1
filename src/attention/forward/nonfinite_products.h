#pragma once

#include "attention/plan/tile_mask.h"
#include "kernels/bf16_kernels.h"

namespace rapt::detail {

/// 64 packed rows, or columns, that a tile of scores is multiplied with.
template <class T>
struct RightRows {
  const T* numbers;
  Index width;
  bool finite;  // false: 0 times a row may be NaN
};

/// out[64][width] += S B over the (query, key) pairs of the mask, scores being 0 elsewhere.
///
/// A NaN or infinity of a hidden key must not come out as 0 * NaN. Tiles that hold such numbers are
/// multiplied without them first, which gives every other result its usual bits, and the visible
/// ones are added afterwards.
void accumulate_values(const TileKernels<float>& tiles, const float* scores,
                       const RightRows<float>& rows, const TileMask& mask, Index row_count,
                       float* out);
/// The same, of probabilities rounded to bf16.
void accumulate_values(const TileKernels<Bf16>& tiles, const Bf16* probabilities,
                       const RightRows<Bf16>& rows, const TileMask& mask, Index row_count,
                       float* out);

/// out[64][width] += S' B, likewise.
void accumulate_transposed(const TileKernels<float>& tiles, const float* scores,
                           const RightRows<float>& rows, const TileMask& mask, Index row_count,
                           float* out);
/// out[width][64] += columns · interleaved, the 64 rows of `columns` transposed. `scores` are what
/// `interleaved` was rounded from, [64][64].
void accumulate_transposed(const TileKernels<Bf16>& tiles, const Bf16* interleaved,
                           const float* scores, const RightRows<Bf16>& columns,
                           const TileMask& mask, Index row_count, float* out);

}  // namespace rapt::detail
