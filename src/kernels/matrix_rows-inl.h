// A few rows times a matrix whose columns lie one after the other, as the weight of a layer does:
// every number of it is read once, as it lies, widened in registers.
#if defined(RAPT_MATRIX_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_MATRIX_ROWS_INL_H
#undef RAPT_MATRIX_ROWS_INL_H
#else
#define RAPT_MATRIX_ROWS_INL_H
#endif

#include "kernels/matrix-inl.h"
#include "kernels/number-inl.h"
#include "kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Rows of a left operand, `stride` apart.
struct LeftRows {
  const float* data;
  Index stride;
};

/// Vectors of one chain of f32 sums.
inline constexpr Index row_stretch = 32;

/// sums[rows][lines] += the products over depths begin .. end - 1. Chains are at most one stretch
/// of vectors long; from there on sums are f64.
template <int rows, int lines, class T>
HWY_INLINE void AddRowProducts(const LeftRows& left, const T* line, Index step, Index begin,
                               Index end, double (&sums)[rows * lines]) {
  const DF d;
  VF acc[rows * lines];
#pragma GCC unroll 16
  for (int i = 0; i < rows * lines; ++i) acc[i] = hn::Zero(d);
  Index k = begin;
  for (; k + lane_count <= end; k += lane_count) {
    VF x[lines];
#pragma GCC unroll 8
    for (int j = 0; j < lines; ++j) x[j] = LoadFloats(d, line + j * step + k);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const VF a = hn::LoadU(d, left.data + r * left.stride + k);
#pragma GCC unroll 8
      for (int j = 0; j < lines; ++j) acc[r * lines + j] = hn::MulAdd(a, x[j], acc[r * lines + j]);
    }
  }
  HWY_ALIGN float part[(rows * lines + 3) / 4 * 4];
  if constexpr (rows * lines % 4 == 0) {
#pragma GCC unroll 4
    for (int i = 0; i < rows * lines; i += 4) StoreFourSums(acc + i, part + i);
  } else {
    for (int i = 0; i < rows * lines; ++i) part[i] = hn::GetLane(hn::SumOfLanes(d, acc[i]));
  }
  for (int i = 0; i < rows * lines; ++i) sums[i] += static_cast<double>(part[i]);
  for (; k < end; ++k)
    for (int r = 0; r < rows; ++r)
      for (int j = 0; j < lines; ++j)
        sums[r * lines + j] += static_cast<double>(left.data[r * left.stride + k]) *
                               static_cast<double>(static_cast<float>(line[j * step + k]));
}

/// `rows` rows and `lines` lines over the whole depth, to columns `column`, `column` + 1, ...
template <int rows, int lines, class T>
HWY_INLINE void RowProductTile(const LeftRows& left, const T* line, const MatrixLines& right,
                               Index row, Index column, const MatrixResult& to) {
  constexpr Index at_once = row_stretch * lane_count;
  double sums[rows * lines] = {};
  for (Index begin = 0; begin < right.depth; begin += at_once)
    AddRowProducts<rows, lines>(left, line, right.step, begin,
                                std::min(right.depth, begin + at_once), sums);
  for (int r = 0; r < rows; ++r)
    for (int j = 0; j < lines; ++j) {
      float* out = to.data + (row + r) * to.stride + column + j;
      double sum = sums[r * lines + j];
      if (to.add) sum += static_cast<double>(*out);
      if (!to.add && to.bias != nullptr) sum += static_cast<double>(to.bias[column + j]);
      *out = static_cast<float>(sum);
    }
}

/// Lines that pass together, for as many rows as there are registers.
template <int rows, class T>
HWY_INLINE void RowProductLines(const float* left, Index stride, const T* from,
                                const MatrixLines& right, const MatrixResult& to) {
  constexpr int together = rows >= 4 ? 2 : 4;
  Index column = 0;
  const auto pass = [&](auto lines) {
    constexpr int count = decltype(lines)::value;
    const T* line = from + column * right.step;
    Index row = 0;
    for (; row + rows <= to.rows; row += rows)
      RowProductTile<rows, count>({left + row * stride, stride}, line, right, row, column, to);
    for (; row < to.rows; ++row)
      RowProductTile<1, count>({left + row * stride, stride}, line, right, row, column, to);
  };
  for (; column + together <= right.count; column += together)
    pass(std::integral_constant<int, together>());
  for (; column < right.count; ++column) pass(std::integral_constant<int, 1>());
}

/// to = left · right, right's columns lying one after the other.
inline void MatrixRows(const float* left, Index stride, const MatrixLines& right,
                       const MatrixResult& to) noexcept {
  Dispatch(right.data, right.type, [&](const auto* from) {
    if (to.rows >= 4) return RowProductLines<4>(left, stride, from, right, to);
    if (to.rows >= 2) return RowProductLines<2>(left, stride, from, right, to);
    RowProductLines<1>(left, stride, from, right, to);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt
HWY_AFTER_NAMESPACE();
#endif
