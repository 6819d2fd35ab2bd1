#pragma once

#include <cstdint>

#include "rapt/tensor.h"

namespace rapt::detail {

/// Hashed attention.
struct LshKernels {
  // best[64]: first place of the largest among `rows` numbers of a column and their negatives,
  // which come after them; numbers [rows][64].
  void (*signed_argmax)(const float* numbers, Index rows, std::int32_t* best) noexcept;
  // Bit c of visible[r]: lows[r] <= keys[c] < highs[r]; of same[r]: keys[c] == queries[r] >= 0.
  void (*sorted_masks)(const std::int32_t* queries, const std::int32_t* lows,
                       const std::int32_t* highs, Index rows, const std::int32_t* keys,
                       std::uint64_t* visible, std::uint64_t* same) noexcept;
};

}  // namespace rapt::detail
