#pragma once

#include "kernels/tile.h"

namespace rapt::detail {

/// Conversions between rows, pages of a cache and f32 tiles. Layouts of bf16 and int8 pages are the
/// same on every instruction set:
///
// clang-format off
///   bf16 keys    [half_depth][64][2]    any half_depth >= dim / 2: columns 2 i and 2 i + 1
///   bf16 values  [2][16][width][2]      any width >= dim: slots 32 g + i and 32 g + 16 + i
///   int8 keys    [ceil(dim/4)][64][4]   columns 4 i to 4 i + 3
///   int8 values  [16][width][4]         any width >= dim: slots i, 16 + i, 32 + i, 48 + i
// clang-format on
struct PageKernels {
  // Up to 64 rows of any type, rounded to nearest and filled up with zeros; false if a packed
  // number is not finite. These are the panels and rows of TileKernels<Bf16>.
  bool (*pack_bf16_keys)(const InputRows& rows, Index dim, Index half_depth, Bf16* out) noexcept;
  bool (*pack_bf16_values)(const InputRows& rows, Index dim, Index width, Bf16* out) noexcept;

  // To panels and rows of TileKernels<float>; width is at most stored_width. int8 has a scale for
  // each slot.
  void (*unpack_bf16_keys)(const Bf16* stored, Index dim, float* panels) noexcept;
  void (*unpack_bf16_values)(const Bf16* stored, Index stored_width, Index width,
                             float* rows) noexcept;
  void (*unpack_int8_keys)(const std::int8_t* stored, const float* scales, Index dim,
                           float* panels) noexcept;
  void (*unpack_int8_values)(const std::int8_t* stored, const float* scales, Index stored_width,
                             Index width, float* rows) noexcept;
};

}  // namespace rapt::detail
