// The elementwise half of backward.
#if defined(RAPT_BACKWARD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_BACKWARD_INL_H
#undef RAPT_BACKWARD_INL_H
#else
#define RAPT_BACKWARD_INL_H
#endif

#include "kernels/tile_kernels.h"
#include "kernels/tiles/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE void SoftmaxBackwardRow(float* row, float* drow, float running_max, float delta) {
  const DF d;
  const VF base = hn::Set(d, running_max);
  const VF mean = hn::Set(d, delta);
#pragma GCC unroll 4
  for (Index c = 0; c < tile; c += lane_count) {
    const VF p = Exp2(d, hn::Sub(hn::Load(d, row + c), base));
    hn::Store(p, d, row + c);
    hn::Store(hn::Mul(p, hn::Sub(hn::Load(d, drow + c), mean)), d, drow + c);
  }
}

/// The same where the mask lets the query see; zeros in the rest of the 64 columns.
HWY_INLINE void SoftmaxBackwardMaskedRow(float* row, float* drow, std::uint64_t word,
                                         float running_max, float delta) {
  const DF d;
  const VF base = hn::Set(d, running_max);
  const VF mean = hn::Set(d, delta);
  for (Index c = 0; c < tile; c += lane_count) {
    const Mask seen = BitsToMask(word, c);
    const VF p = Exp2(d, hn::Sub(hn::IfThenElse(seen, hn::Load(d, row + c), base), base));
    hn::Store(hn::IfThenElseZero(seen, p), d, row + c);
    hn::Store(hn::IfThenElseZero(seen, hn::Mul(p, hn::Sub(hn::Load(d, drow + c), mean))), d,
              drow + c);
  }
}

inline void SoftmaxBackward(float* scores, float* dprobs, Index rows, const std::uint64_t* masks,
                            const SoftmaxGradient& state) noexcept {
  for (Index r = 0; r < rows; ++r) {
    float* row = scores + r * tile;
    float* drow = dprobs + r * tile;
    if (masks == nullptr) {
      SoftmaxBackwardRow(row, drow, state.running_max[r], state.delta[r]);
    } else {
      SoftmaxBackwardMaskedRow(row, drow, masks[r], state.running_max[r], state.delta[r]);
    }
  }
}

template <Store store>
inline void Widen(float* numbers, double* wide, Index count) noexcept {
  WidenInto<store>(numbers, wide, count);
}

inline void Narrow(const double* wide, const float* rest, double factor, Index count,
                   float* out) noexcept {
  NarrowRow(wide, rest, factor, count, out);
}

/// diagonals[63 + c - r] += dlogits[r][c]
inline void SumDiagonals(const float* dlogits, Index rows, double* diagonals) noexcept {
  for (Index r = 0; r < rows; ++r) {
    double* at = diagonals + tile - 1 - r;
    for (Index c = 0; c < tile; ++c) at[c] += static_cast<double>(dlogits[r * tile + c]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
