#pragma once

#include "kernels/kernels.h"

namespace rapt {

/// The products of a masked tile, pair by pair: a hidden pair is not multiplied at all, so a NaN or infinity behind it cannot
/// come out as 0 * NaN. Slow, and only for tiles that hold such numbers.

/// out[64][width] += sum over seen columns of scores[r][c] * rows[c]
void gather_carefully(const Kernels& kernels, const float* scores, const float* rows, Index width,
                      const std::uint64_t* mask, Index row_count, float* out) noexcept;
/// out[64][width] += sum over seeing rows of scores[r][c] * rows[r]
void gather_columns_carefully(const Kernels& kernels, const float* scores, const float* rows, Index width,
                              const std::uint64_t* mask, Index row_count, float* out) noexcept;

}  // namespace rapt
