// Products of matrices of any size: blocks of the result from packed strips and panels.
//
// Traffic per step of the depth with m rows and n vectors: m broadcasts and n vector loads for m n
// multiply-adds. A panel stays in the first cache while all strips of a block pass, the strips stay
// in the second. Sums take three levels, so that rounding errors do not grow with the depth: chains
// of 32 terms in registers, their sums over one block of the depth in a tile on the stack, and the
// blocks in the result.
#if defined(RAPT_MATRIX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_MATRIX_INL_H
#undef RAPT_MATRIX_INL_H
#else
#define RAPT_MATRIX_INL_H
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "kernels/kernels.h"
#include "kernels/product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of a strip and vectors of a panel: 12 sums fit 16 registers beside the operands, 24 fit 32.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr Index matrix_strip = 8;
#else
inline constexpr Index matrix_strip = 4;
#endif
inline constexpr int matrix_vectors = 3;
inline constexpr Index matrix_panel = matrix_vectors * lane_count;
/// Depth of a block: a panel takes at most 24 KiB.
inline constexpr Index matrix_depth = lane_count == 16 ? 128 : 256;

/// Terms of one chain of f32 sums.
inline constexpr Index matrix_stretch = 32;

template <int vectors>
HWY_INLINE void MatrixStep(VF (&acc)[matrix_strip][vectors], const float* HWY_RESTRICT a,
                           const float* HWY_RESTRICT b) {
  const DF d;
  VF right[vectors];
#pragma GCC unroll 8
  for (int n = 0; n < vectors; ++n) right[n] = hn::LoadU(d, b + n * lane_count);
#pragma GCC unroll 8
  for (int m = 0; m < matrix_strip; ++m) {
    const VF left = hn::Set(d, a[m]);
#pragma GCC unroll 8
    for (int n = 0; n < vectors; ++n) acc[m][n] = hn::MulAdd(left, right[n], acc[m][n]);
  }
}

/// One stretch of the depth into the tile: in place of what is there, or added to it.
template <int vectors, Store store>
HWY_INLINE void MatrixStretch(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, Index depth,
                              float* HWY_RESTRICT sums) {
  constexpr Index width = vectors * lane_count;
  const DF d;
  VF acc[matrix_strip][vectors];
#pragma GCC unroll 8
  for (int m = 0; m < matrix_strip; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < vectors; ++n) acc[m][n] = hn::Zero(d);
  }
  Index k = 0;
  for (; k + 8 <= depth; k += 8) {
#pragma GCC unroll 8
    for (Index i = 0; i < 8; ++i) MatrixStep<vectors>(acc, a + i * matrix_strip, b + i * width);
    a += 8 * matrix_strip;
    b += 8 * width;
  }
  for (; k < depth; ++k) {
    MatrixStep<vectors>(acc, a, b);
    a += matrix_strip;
    b += width;
  }
#pragma GCC unroll 8
  for (int m = 0; m < matrix_strip; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < vectors; ++n) {
      float* to = sums + m * width + n * lane_count;
      if constexpr (store == Store::set) {
        hn::Store(acc[m][n], d, to);
      } else {
        hn::Store(hn::Add(hn::Load(d, to), acc[m][n]), d, to);
      }
    }
  }
}

/// sums[strip][width] of one strip and one panel.
template <int vectors>
HWY_INLINE void MatrixTile(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, Index depth,
                           float* HWY_RESTRICT sums) {
  constexpr Index width = vectors * lane_count;
  MatrixStretch<vectors, Store::set>(a, b, std::min(depth, matrix_stretch), sums);
  for (Index k = matrix_stretch; k < depth; k += matrix_stretch)
    MatrixStretch<vectors, Store::add>(a + k * matrix_strip, b + k * width,
                                       std::min(depth - k, matrix_stretch), sums);
}

/// What is in the place of a sum before it comes, and the sum on top.
template <class D>
HWY_INLINE hn::Vec<D> OnTop(D d, hn::Vec<D> sum, const MatrixResult& to, const float* at,
                            Index along) {
  if (to.add) return hn::Add(hn::LoadU(d, at), sum);
  return to.bias == nullptr ? sum : hn::Add(hn::LoadU(d, to.bias + along), sum);
}
HWY_INLINE float OnTop(float sum, const MatrixResult& to, const float* at, Index along) {
  if (to.add) return *at + sum;
  return to.bias == nullptr ? sum : to.bias[along] + sum;
}

/// A tile to rows [row, row + rows) and columns [column, column + columns) of the result.
template <Index width>
HWY_INLINE void StoreTile(const float* sums, const MatrixResult& to, Index row, Index rows,
                          Index column, Index columns) {
  const DF d;
  for (Index m = 0; m < rows; ++m) {
    float* out = to.data + (row + m) * to.stride + column;
    Index n = 0;
    for (; n + lane_count <= columns; n += lane_count)
      hn::StoreU(OnTop(d, hn::Load(d, sums + m * width + n), to, out + n, column + n), d, out + n);
    for (; n < columns; ++n) out[n] = OnTop(sums[m * width + n], to, out + n, column + n);
  }
}

/// The same where the result lies column after column.
template <Index width>
HWY_INLINE void StoreTurnedTile(const float* sums, const MatrixResult& to, Index row, Index rows,
                                Index column, Index columns) {
  Index n = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::Full128<float> d;
  const hn::Repartition<double, hn::Full128<float>> d2;
  for (; rows == matrix_strip && n + 4 <= columns; n += 4) {
    for (Index m = 0; m < matrix_strip; m += 4) {
      hn::Vec<hn::Full128<float>> r[4];
      for (int i = 0; i < 4; ++i) r[i] = hn::Load(d, sums + (m + i) * width + n);
      const auto low01 = hn::BitCast(d2, hn::InterleaveLower(d, r[0], r[1]));
      const auto low23 = hn::BitCast(d2, hn::InterleaveLower(d, r[2], r[3]));
      const auto high01 = hn::BitCast(d2, hn::InterleaveUpper(d, r[0], r[1]));
      const auto high23 = hn::BitCast(d2, hn::InterleaveUpper(d, r[2], r[3]));
      r[0] = hn::BitCast(d, hn::InterleaveLower(d2, low01, low23));
      r[1] = hn::BitCast(d, hn::InterleaveUpper(d2, low01, low23));
      r[2] = hn::BitCast(d, hn::InterleaveLower(d2, high01, high23));
      r[3] = hn::BitCast(d, hn::InterleaveUpper(d2, high01, high23));
      for (Index i = 0; i < 4; ++i) {
        float* out = to.data + (column + n + i) * to.stride + row + m;
        hn::StoreU(OnTop(d, r[i], to, out, row + m), d, out);
      }
    }
  }
#endif
  for (; n < columns; ++n) {
    float* out = to.data + (column + n) * to.stride + row;
    for (Index m = 0; m < rows; ++m) out[m] = OnTop(sums[m * width + n], to, out + m, row + m);
  }
}

/// All strips of a block with one panel.
template <int vectors>
inline HWY_NOINLINE void MatrixPanel(const float* strips, const float* panel, Index depth,
                                     const MatrixResult& to, Index column) {
  constexpr Index width = vectors * lane_count;
  HWY_ALIGN float sums[matrix_strip * width];
  const Index columns = std::min(width, to.columns - column);
  for (Index row = 0; row < to.rows; row += matrix_strip) {
    const Index rows = std::min(matrix_strip, to.rows - row);
    MatrixTile<vectors>(strips + row * depth, panel, depth, sums);
    if (to.turned) {
      StoreTurnedTile<width>(sums, to, row, rows, column, columns);
    } else {
      StoreTile<width>(sums, to, row, rows, column, columns);
    }
  }
}

inline void MatrixProduct(const float* strips, const float* panels, Index depth,
                          const MatrixResult& to) noexcept {
  for (Index column = 0; column < to.columns; column += matrix_panel) {
    const float* panel = panels + column * depth;
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
}  // namespace rapt
HWY_AFTER_NAMESPACE();
#endif
