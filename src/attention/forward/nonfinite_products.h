#pragma once

#include "attention/score/tile_logits.h"

namespace rapt {

/// 64 packed rows that a tile of scores is multiplied with.
struct RightRows {
  const float* numbers;
  Index width;
  bool finite;  // false: 0 times a row may be NaN
};

/// out[64][width] += S B over the pairs of the mask, scores being 0 on the others.
///
/// A NaN or infinity behind a hidden pair must not come out as 0 * NaN. Tiles that hold such
/// numbers are multiplied without them first, which gives every other result its usual bits, and
/// the visible ones are added afterwards.
void gather(const Kernels& kernels, const float* scores, const RightRows& rows,
            const TileMask& mask, Index row_count, float* out);
/// out[64][width] += S' B, likewise.
void gather_columns(const Kernels& kernels, const float* scores, const RightRows& rows,
                    const TileMask& mask, Index row_count, float* out);

/// 64 rows of bf16 in pairs (bf16_kernels.h).
struct PairRows {
  const Bf16* numbers;
  Index width;
  bool finite;
};

/// As gather, of probabilities rounded to bf16.
void gather(const PairKernels& pairs, const Bf16* probabilities, const PairRows& rows,
            const TileMask& mask, Index row_count, float* out);
/// out[width][64] += columns · natural, the 64 rows of `columns` transposed. `numbers` are what
/// `natural` was rounded from, [64][64].
void gather_columns(const PairKernels& pairs, const Bf16* natural, const float* numbers,
                    const PairRows& columns, const TileMask& mask, Index row_count, float* out);

}  // namespace rapt
