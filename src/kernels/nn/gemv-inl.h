// A few rows times a matrix with contiguous columns, as in the weight of a layer: every number of
// it is read once, where it is, widened and transposed in registers.
//
// Lanes are columns and sums run along the depth, in the order of the blocked product: chains of 16
// terms, their sums over one block of the depth, then the blocks. So a row has the same bits alone,
// among a few and among many. Per square of lanes: a load and four shuffles for every vector,
// and a broadcast and a multiply-add for every vector and row.
#if defined(RAPT_GEMV_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_GEMV_INL_H
#undef RAPT_GEMV_INL_H
#else
#define RAPT_GEMV_INL_H
#endif

#include <algorithm>

#include "kernels/common/convert-inl.h"
#include "kernels/common/transpose-inl.h"
#include "kernels/nn/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Rows of a left operand, `stride` apart.
struct LeftRows {
  const float* data;
  Index stride;
};

/// As many columns as a vector has lanes. Where there are fewer, the last one is repeated.
template <class T>
struct LineGroup {
  HWY_INLINE LineGroup(const T* from, const MatrixLines& right, Index column) {
    for (Index i = 0; i < lane_count; ++i)
      lines[i] = from + std::min(column + i, right.count - 1) * right.step;
  }
  const T* lines[lane_count];
};

/// x[i] becomes depth k + i of all lines.
template <class T>
HWY_INLINE void LoadTransposed(const LineGroup<T>& of, Index k, VF (&x)[lane_count]) {
  const DF d;
#if HWY_TARGET == HWY_SCALAR
  x[0] = LoadFloats(d, of.lines[0] + k);
#else
  VF transposed[vector_blocks][4];
#pragma GCC unroll 4
  for (int b = 0; b < vector_blocks; ++b) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) transposed[b][i] = LoadFloats(d, of.lines[4 * b + i] + k);
    TransposeInBlocks(d, transposed[b]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    VF column[vector_blocks];
#pragma GCC unroll 4
    for (int b = 0; b < vector_blocks; ++b) column[b] = transposed[b][i];
    TransposeBlocks(column);
#pragma GCC unroll 4
    for (int b = 0; b < vector_blocks; ++b) x[4 * b + i] = column[b];
  }
#endif
}

/// One chain for each of `rows` rows, over all of a stretch.
template <int rows, class T>
HWY_INLINE void RowChains(const LeftRows& left, const LineGroup<T>& of, Index k, VF (&acc)[rows]) {
  const DF d;
  for (Index part = 0; part < matrix_stretch; part += lane_count) {
    VF x[lane_count];
    LoadTransposed(of, k + part, x);
#pragma GCC unroll 16
    for (Index i = 0; i < lane_count; ++i) {
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) {
        const VF a = hn::Set(d, left.data[r * left.stride + k + part + i]);
        acc[r] = part + i == 0 ? hn::Mul(a, x[i]) : hn::MulAdd(a, x[i], acc[r]);
      }
    }
  }
}

/// The end of a block that is no whole stretch: from zero, as the blocked product begins there.
template <int rows, class T>
HWY_INLINE void LastChains(const LeftRows& left, const LineGroup<T>& of, Index k, Index end,
                           VF (&acc)[rows]) {
  const DF d;
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) acc[r] = hn::Zero(d);
  for (; k < end; ++k) {
    HWY_ALIGN float depth[lane_count];
    for (Index i = 0; i < lane_count; ++i) depth[i] = static_cast<float>(of.lines[i][k]);
    const VF x = hn::Load(d, depth);
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r)
      acc[r] = hn::MulAdd(hn::Set(d, left.data[r * left.stride + k]), x, acc[r]);
  }
}

/// Sums over depths begin .. end - 1, which are one block.
template <int rows, class T>
HWY_INLINE void RowBlock(const LeftRows& left, const LineGroup<T>& of, Index begin, Index end,
                         VF (&sums)[rows]) {
  VF acc[rows] = {};  // GCC 12 does not see that the first stretch sets it
  const auto take = [&](bool first) HWY_ATTR {
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) sums[r] = first ? acc[r] : hn::Add(sums[r], acc[r]);
  };
  Index k = begin;
  for (; k + matrix_stretch <= end; k += matrix_stretch) {
    RowChains<rows>(left, of, k, acc);
    take(k == begin);
  }
  if (k == end) return;
  LastChains<rows>(left, of, k, end, acc);
  take(k == begin);
}

/// Some rows and a vector of columns over the whole depth.
template <int rows, class T>
HWY_INLINE void RowTile(const LeftRows& left, const LineGroup<T>& of, Index depth, Index row,
                        Index column, MatrixResult to) {
  const Index columns = std::min(lane_count, to.columns - column);
  HWY_ALIGN float tile_sums[rows * lane_count];
  for (Index begin = 0; begin < depth; begin += matrix_depth, to.add = true) {
    VF sums[rows] = {};
    RowBlock<rows>(left, of, begin, std::min(depth, begin + matrix_depth), sums);
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) hn::Store(sums[r], DF(), tile_sums + r * lane_count);
    StoreTile(tile_sums, lane_count, to, row, rows, column, columns);
  }
}

/// to = left · right, for contiguous columns of right. Those of a vector stay in the L1 while
/// groups of four rows pass.
inline void MatrixRows(const float* left, Index stride, const MatrixLines& right,
                       const MatrixResult& to) noexcept {
  Dispatch(right.data, right.type, [&](const auto* from) {
    for (Index column = 0; column < to.columns; column += lane_count) {
      const LineGroup lines(from, right, column);
      Index row = 0;
      for (; row + 4 <= to.rows; row += 4)
        RowTile<4>({left + row * stride, stride}, lines, right.depth, row, column, to);
      for (; row + 2 <= to.rows; row += 2)
        RowTile<2>({left + row * stride, stride}, lines, right.depth, row, column, to);
      if (row < to.rows)
        RowTile<1>({left + row * stride, stride}, lines, right.depth, row, column, to);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
