// Transposes: numbers inside blocks of four first, then the blocks of a vector, so that neither
// side is read or written one float at a time.
#if defined(RAPT_TRANSPOSE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_TRANSPOSE_INL_H
#undef RAPT_TRANSPOSE_INL_H
#else
#define RAPT_TRANSPOSE_INL_H
#endif

#include "kernels/common/convert-inl.h"
#include "kernels/tiles/matmul-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D4 = hn::CappedTag<float, 4>;  // one lane where there are no vectors

/// Adds up x - x: stays 0 for finite numbers and becomes NaN for the rest.
struct FiniteCheck {
  VF wide;
  hn::Vec<D4> sum;
  float rest;
  HWY_INLINE FiniteCheck() : wide(hn::Zero(DF())), sum(hn::Zero(D4())), rest(0) {}
  template <class D>
  HWY_INLINE void See(D, hn::Vec<D> x) {
    if constexpr (hn::MaxLanes(D()) == lane_count) {
      wide = hn::Add(wide, hn::Sub(x, x));
    } else {
      sum = hn::Add(sum, hn::Sub(x, x));
    }
  }
  HWY_INLINE void See(float x) { rest += x - x; }
  HWY_INLINE bool Finite() const {
    const float total =
        hn::GetLane(hn::SumOfLanes(DF(), wide)) + hn::GetLane(hn::SumOfLanes(D4(), sum)) + rest;
    return total == 0;
  }
};

/// A factor in two floats, so that x * factor is rounded once and not twice.
struct Factor {
  float high, low;
  HWY_INLINE explicit Factor(double factor)
      : high(static_cast<float>(factor)),
        low(static_cast<float>(factor - static_cast<double>(high))) {}
  HWY_INLINE Factor() : high(1), low(0) {}
  HWY_INLINE float Times(float x) const {
    const double exact = static_cast<double>(x) * (static_cast<double>(high) + low);
    return static_cast<float>(exact);
  }
  /// An infinite x must not meet low, which may be 0 or of the other sign.
  template <class D>
  HWY_INLINE hn::Vec<D> Times(D d, hn::Vec<D> x) const {
    const auto finite = hn::Eq(hn::Sub(x, x), hn::Zero(d));
    const auto rest = hn::IfThenElseZero(finite, hn::Mul(x, hn::Set(d, low)));
    return hn::MulAdd(x, hn::Set(d, high), rest);
  }
};

/// The factor of rows that have none: packing keys and values without one is measurably faster.
struct NoFactor {
  HWY_INLINE explicit NoFactor(double) {}
  HWY_INLINE NoFactor() = default;
  HWY_INLINE float Times(float x) const { return x; }
  template <class D>
  HWY_INLINE hn::Vec<D> Times(D, hn::Vec<D> x) const {
    return x;
  }
};

#if HWY_TARGET != HWY_SCALAR
/// x[i] block b holds columns 4 b .. 4 b + 3 of row i before, and column 4 b + i of rows 0 to 3
/// afterwards.
template <class D>
HWY_INLINE void TransposeInBlocks(D d, hn::Vec<D> (&x)[4]) {
  const hn::Repartition<double, D> d2;
  const auto low01 = hn::BitCast(d2, hn::InterleaveLower(d, x[0], x[1]));
  const auto low23 = hn::BitCast(d2, hn::InterleaveLower(d, x[2], x[3]));
  const auto high01 = hn::BitCast(d2, hn::InterleaveUpper(d, x[0], x[1]));
  const auto high23 = hn::BitCast(d2, hn::InterleaveUpper(d, x[2], x[3]));
  x[0] = hn::BitCast(d, hn::InterleaveLower(d2, low01, low23));
  x[1] = hn::BitCast(d, hn::InterleaveUpper(d2, low01, low23));
  x[2] = hn::BitCast(d, hn::InterleaveLower(d2, high01, high23));
  x[3] = hn::BitCast(d, hn::InterleaveUpper(d2, high01, high23));
}

inline constexpr int vector_blocks = static_cast<int>(lane_count / 4);

/// Swaps block b of x[a] and block a of x[b].
HWY_INLINE void TransposeBlocks(VF* x) {
  const DF d;
  if constexpr (vector_blocks == 2) {
    const VF first = hn::ConcatLowerLower(d, x[1], x[0]);
    x[1] = hn::ConcatUpperUpper(d, x[1], x[0]);
    x[0] = first;
  } else if constexpr (vector_blocks == 4) {
    const VF even01 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(x[1]), x[0]);
    const VF odd01 = hn::OddEvenBlocks(x[1], hn::SwapAdjacentBlocks(x[0]));
    const VF even23 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(x[3]), x[2]);
    const VF odd23 = hn::OddEvenBlocks(x[3], hn::SwapAdjacentBlocks(x[2]));
    x[0] = hn::ConcatLowerLower(d, even23, even01);
    x[1] = hn::ConcatLowerLower(d, odd23, odd01);
    x[2] = hn::ConcatUpperUpper(d, even23, even01);
    x[3] = hn::ConcatUpperUpper(d, odd23, odd01);
  }
}

/// Loads four rows, each times its factor, transposed in blocks.
template <class D, class T, class F>
HWY_INLINE void LoadBlocksTransposed(D d, const T* const* rows, const F* factors, Index c,
                                     FiniteCheck& finite, hn::Vec<D> (&x)[4]) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    x[i] = factors[i].Times(d, LoadFloats(d, rows[i] + c));
    finite.See(d, x[i]);
  }
  TransposeInBlocks(d, x);
}
#endif

/// Columns from `c` on of 4 rows, each times its factor: out[column * out_stride + row].
template <class T, class F>
HWY_INLINE void TransposeFour(const T* const* rows, const F* factors, Index c, Index dim,
                              float* out, Index out_stride, FiniteCheck& finite) {
#if HWY_TARGET != HWY_SCALAR
  const D4 d;
  for (; c + 4 <= dim; c += 4) {
    hn::Vec<D4> x[4];
    LoadBlocksTransposed(d, rows, factors, c, finite, x);
    for (int i = 0; i < 4; ++i) hn::StoreU(x[i], d, out + (c + i) * out_stride);
  }
#endif
  for (; c < dim; ++c) {
    for (int i = 0; i < 4; ++i) {
      const float x = factors[i].Times(static_cast<float>(rows[i][c]));
      finite.See(x);
      out[c * out_stride + i] = x;
    }
  }
}

#if HWY_TARGET != HWY_SCALAR
/// The whole vectors of 4 rows to out[column][4]; how many columns that were.
template <class T, class F>
HWY_INLINE Index TransposeStrip(const T* const* rows, const F* factors, Index dim, float* out,
                                FiniteCheck& finite) {
  const DF d;
  Index c = 0;
  for (; c + lane_count <= dim; c += lane_count) {
    VF x[4];
    LoadBlocksTransposed(d, rows, factors, c, finite, x);
    for (int first = 0; first < 4; first += vector_blocks) TransposeBlocks(x + first);
    float* to = out + c * 4;
    for (int b = 0; b < vector_blocks; ++b) {
      for (int first = 0; first < 4; first += vector_blocks, to += lane_count)
        hn::StoreU(x[first + b], d, to);
    }
  }
  return c;
}

/// The whole vectors of as many rows as a vector has lanes to out[column * out_stride + row]; how
/// many columns that were.
template <class T, class F>
HWY_INLINE Index TransposeSquares(const T* const* rows, const F* factors, Index dim, float* out,
                                  Index out_stride, FiniteCheck& finite) {
  const DF d;
  Index c = 0;
  for (; c + lane_count <= dim; c += lane_count) {
    VF x[vector_blocks][4];
#pragma GCC unroll 4
    for (int b = 0; b < vector_blocks; ++b)
      LoadBlocksTransposed(d, rows + 4 * b, factors + 4 * b, c, finite, x[b]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      VF column[vector_blocks];
      for (int b = 0; b < vector_blocks; ++b) column[b] = x[b][i];
      TransposeBlocks(column);
      for (int b = 0; b < vector_blocks; ++b)
        hn::StoreU(column[b], d, out + (c + 4 * b + i) * out_stride);
    }
  }
  return c;
}
#else  // one number at a time
template <class T, class F>
HWY_INLINE Index TransposeStrip(const T* const*, const F*, Index, float*, FiniteCheck&) {
  return 0;
}
template <class T, class F>
HWY_INLINE Index TransposeSquares(const T* const*, const F*, Index, float*, Index, FiniteCheck&) {
  return 0;
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
