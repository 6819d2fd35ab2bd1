#pragma once

#include "kernels/kernels.h"

namespace rapt {

/// A query row in whole numbers: 16 bytes about it, then for every four columns their lowest bytes,
/// their middle and their highest ones, and four that do not count.
inline constexpr Index byte_query_size(Index dim) { return 16 + (dim + 15) / 16 * 64; }

/// A few query rows past tiles of int8 without making floats of them: for CPUs with AVX512-VNNI.
struct ByteKernels {
  /// Rows of `dim` numbers, Kernels::thin_step apart as for Kernels::thin, into rows of
  /// byte_query_size(dim).
  void (*pack_queries)(const float* queries, Index rows, Index dim, std::byte* out) noexcept;
  /// As Kernels::thin_pass, but of queries in whole numbers.
  void (*pass)(const ThinPass& pass) noexcept;
};

}  // namespace rapt
