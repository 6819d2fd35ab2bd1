// Products of matrices of any size: blocks of the result from packed strips and panels.
//
// Traffic per step of the depth with m rows and n vectors: m broadcasts and n vector loads for m n
// multiply-adds. The strips of a block come from L2. Sums take three levels, so that rounding
// errors do not grow with the depth: chains of 16 terms in registers, their sums over one block of
// the depth in a tile on the stack, and the blocks in the result.
//
// Panels are f32, or f16 or bf16 that is widened as it is loaded: the same bits, from
// half the memory, for three conversions more a step.
#if defined(RAPT_GEMM_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_GEMM_INL_H
#undef RAPT_GEMM_INL_H
#else
#define RAPT_GEMM_INL_H
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "kernels/common/convert-inl.h"
#include "kernels/matrix_kernels.h"
#include "kernels/tiles/matmul-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of a strip and vectors of a panel: 12 sums fit 16 registers next to the operands, 24 fit 32.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr Index matrix_strip = 8;
#else
inline constexpr Index matrix_strip = 4;
#endif
inline constexpr int matrix_vectors = 3;
inline constexpr Index matrix_panel = matrix_vectors * lane_count;
/// Depth of a block. A panel takes 24 KiB at most and fits L1, except for AVX-512: there it is 72
/// KiB from the second, which is fast enough, and the result passes a third as often.
inline constexpr Index matrix_depth = lane_count == 16 ? 384 : 256;

/// Terms of one chain of f32 sums. Longer ones are slower too: straight-line code of 32 terms
/// leaves the cache of decoded instructions.
inline constexpr Index matrix_stretch = 16;

/// Otherwise GCC loads operands so early that it spills sums: 0.75 instead of 0.95 of the peak.
HWY_INLINE void KeepOrder() { asm volatile("" ::: "memory"); }

template <int rows, int vectors, class Right>
HWY_INLINE void MatrixStep(VF (&acc)[rows][vectors], const float* HWY_RESTRICT a,
                           const Right* HWY_RESTRICT b) {
  const DF d;
  VF right[vectors];
#pragma GCC unroll 8
  for (int n = 0; n < vectors; ++n) right[n] = LoadFloats(d, b + n * lane_count);
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
    const VF left = hn::Set(d, a[m]);
#pragma GCC unroll 8
    for (int n = 0; n < vectors; ++n) acc[m][n] = hn::MulAdd(left, right[n], acc[m][n]);
    KeepOrder();
  }
}

/// The sums of a stretch into the tile: in place of what is there, or added to it.
template <int rows, int vectors, Store store>
HWY_INLINE void StoreStretch(const VF (&acc)[rows][vectors], float* HWY_RESTRICT sums) {
  const DF d;
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < vectors; ++n) {
      float* to = sums + (m * vectors + n) * lane_count;
      if constexpr (store == Store::set) {
        hn::Store(acc[m][n], d, to);
      } else {
        hn::Store(hn::Add(hn::Load(d, to), acc[m][n]), d, to);
      }
    }
  }
}

/// The sums of a whole stretch, straight-line: the first step multiplies where the others add.
template <int rows, int vectors, class Right>
HWY_INLINE void WholeStretch(const float* HWY_RESTRICT a, const Right* HWY_RESTRICT b,
                             VF (&acc)[rows][vectors]) {
  const DF d;
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
    const VF left = hn::Set(d, a[m]);
#pragma GCC unroll 8
    for (int n = 0; n < vectors; ++n) acc[m][n] = hn::Mul(left, LoadFloats(d, b + n * lane_count));
  }
#pragma GCC unroll 64
  for (Index k = 1; k < matrix_stretch; ++k)
    MatrixStep<rows, vectors>(acc, a + k * matrix_strip, b + k * vectors * lane_count);
}

/// The end of a block that is no whole stretch.
template <int rows, int vectors, class Right>
HWY_INLINE void LastStretch(const float* HWY_RESTRICT a, const Right* HWY_RESTRICT b, Index depth,
                            VF (&acc)[rows][vectors]) {
  const DF d;
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < vectors; ++n) acc[m][n] = hn::Zero(d);
  }
  for (Index k = 0; k < depth; ++k)
    MatrixStep<rows, vectors>(acc, a + k * matrix_strip, b + k * vectors * lane_count);
}

/// A tile of sums, `width` apart, to rows [row, row + rows) and columns [column, column + columns)
/// of the result.
HWY_INLINE void StoreTile(const float* sums, Index width, const MatrixResult& to, Index row,
                          Index rows, Index column, Index columns) {
  const DF d;
  for (Index m = 0; m < rows; ++m, sums += width) {
    float* out = to.data + (row + m) * to.stride + column;
    // What is there before the sum comes.
    const float* before = to.add ? out : to.bias == nullptr ? nullptr : to.bias + column;
    Index n = 0;
    for (; n + lane_count <= columns; n += lane_count) {
      const VF sum = hn::Load(d, sums + n);
      hn::StoreU(before == nullptr ? sum : hn::Add(hn::LoadU(d, before + n), sum), d, out + n);
    }
    for (; n < columns; ++n) out[n] = before == nullptr ? sums[n] : before[n] + sums[n];
  }
}

/// Prefetches the place of a tile, which is in no near cache when its sums are done.
HWY_INLINE void PrefetchTile(const MatrixResult& to, Index row, Index rows, Index column,
                             Index columns) {
  for (Index m = 0; m < rows; ++m) {
    const float* out = to.data + (row + m) * to.stride + column;
    for (Index n = 0; n < columns; n += 16) __builtin_prefetch(out + n, 1);
    __builtin_prefetch(out + columns - 1, 1);
  }
}

/// A tile that is wholly in the result: before + (sums + acc), `before` being rows `step` apart, or
/// null.
template <int rows, int vectors, bool added>
HWY_INLINE void StoreWhole(const VF (&acc)[rows][vectors], const float* HWY_RESTRICT sums,
                           const float* before, Index step, float* out, Index stride) {
  const DF d;
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < vectors; ++n) {
      VF sum = hn::Add(hn::Load(d, sums + (m * vectors + n) * lane_count), acc[m][n]);
      if constexpr (added) sum = hn::Add(hn::LoadU(d, before + m * step + n * lane_count), sum);
      hn::StoreU(sum, d, out + m * stride + n * lane_count);
    }
  }
}

/// The place of a tile in a result.
struct TilePlace {
  const MatrixResult& to;
  Index row, rows, column, columns;

  /// The sums of the last stretch and, if there were others, of those before.
  template <int strip_rows, int vectors>
  HWY_INLINE void Take(const VF (&acc)[strip_rows][vectors], float* sums, bool others) const {
    constexpr Index width = vectors * lane_count;
    float* out = to.data + row * to.stride + column;
    if (!others) {
      StoreStretch<strip_rows, vectors, Store::set>(acc, sums);
    } else if (rows < strip_rows || columns < width) {
      StoreStretch<strip_rows, vectors, Store::add>(acc, sums);
    } else if (to.add) {
      return StoreWhole<strip_rows, vectors, true>(acc, sums, out, to.stride, out, to.stride);
    } else if (to.bias != nullptr) {
      return StoreWhole<strip_rows, vectors, true>(acc, sums, to.bias + column, 0, out, to.stride);
    } else {
      return StoreWhole<strip_rows, vectors, false>(acc, sums, nullptr, 0, out, to.stride);
    }
    StoreTile(sums, width, to, row, rows, column, columns);
  }
};

/// The first rows of one strip with one panel, to their place. Stretches add up in `sums`, but for
/// the last one: the result takes it from registers. One copy of the straight-line code serves all.
template <int rows, int vectors, class Right>
HWY_INLINE void MatrixTile(const float* HWY_RESTRICT a, const Right* HWY_RESTRICT b, Index depth,
                           float* HWY_RESTRICT sums, const TilePlace& place) {
  for (Index k = matrix_stretch; k <= depth; k += matrix_stretch) {
    VF acc[rows][vectors];
    WholeStretch<rows, vectors>(a, b, acc);
    if (k == depth) return place.Take<rows, vectors>(acc, sums, k > matrix_stretch);
    if (k == matrix_stretch) {
      StoreStretch<rows, vectors, Store::set>(acc, sums);
    } else {
      StoreStretch<rows, vectors, Store::add>(acc, sums);
    }
    a += matrix_stretch * matrix_strip;
    b += matrix_stretch * vectors * lane_count;
  }
  VF acc[rows][vectors];
  LastStretch<rows, vectors>(a, b, depth % matrix_stretch, acc);
  place.Take<rows, vectors>(acc, sums, depth > matrix_stretch);
}

/// All strips of a block with one panel. A last strip of fewer rows, as when tokens are generated,
/// costs 1, 2, 4 or all rows of a strip.
template <int vectors, class Right>
inline HWY_NOINLINE void MatrixPanel(const float* strips, const Right* panel, Index depth,
                                     const MatrixResult& to, Index column) {
  constexpr Index width = vectors * lane_count;
  HWY_ALIGN float sums[matrix_strip * width];
  const Index columns = std::min(width, to.columns - column);
  for (Index row = 0; row < to.rows; row += matrix_strip) {
    const Index rows = std::min(matrix_strip, to.rows - row);
    const float* strip = strips + row * depth;
    const TilePlace place{to, row, rows, column, columns};
    PrefetchTile(to, row, rows, column, columns);
    if (rows > 4 || (rows > 2 && matrix_strip == 4)) {
      MatrixTile<matrix_strip, vectors>(strip, panel, depth, sums, place);
    } else if (rows > 2) {
      MatrixTile<4, vectors>(strip, panel, depth, sums, place);
    } else if (rows == 2) {
      MatrixTile<2, vectors>(strip, panel, depth, sums, place);
    } else {
      MatrixTile<1, vectors>(strip, panel, depth, sums, place);
    }
  }
}

template <class Right>
inline void MatrixProduct(const float* strips, const Right* panels, Index depth,
                          const MatrixResult& to) noexcept {
  for (Index column = 0; column < to.columns; column += matrix_panel) {
    const Right* panel = panels + column * depth;
    const Index columns = to.columns - column;
    if (columns <= lane_count) {
      MatrixPanel<1>(strips, panel, depth, to, column);
    } else if (columns <= 2 * lane_count) {
      MatrixPanel<2>(strips, panel, depth, to, column);
    } else {
      MatrixPanel<3>(strips, panel, depth, to, column);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
