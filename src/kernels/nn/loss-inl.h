// Rows of logits, which are as long as a vocabulary and stay in L2 between passes.
#if defined(RAPT_LOSS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_LOSS_INL_H
#undef RAPT_LOSS_INL_H
#else
#define RAPT_LOSS_INL_H
#endif

#include <algorithm>
#include <limits>

#include "kernels/common/vector_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// -inf if there is nothing. Its result for a row with a NaN is not used: the row's sum of
/// exponentials is NaN whatever is taken away first.
inline float Largest(const float* x, Index count) noexcept {
  const VF least = hn::Set(DF(), -std::numeric_limits<float>::infinity());
  VF most[chains] = {least, least, least, least};
  Index i = 0;
  for (; i + chains * lane_count <= count; i += chains * lane_count) {
#pragma GCC unroll 4
    for (int c = 0; c < chains; ++c)
      most[c] = hn::Max(most[c], hn::LoadU(DF(), x + i + c * lane_count));
  }
  float result = hn::GetLane(
      hn::MaxOfLanes(DF(), hn::Max(hn::Max(most[0], most[1]), hn::Max(most[2], most[3]))));
  for (; i < count; ++i) result = std::max(result, x[i]);
  return result;
}

/// x becomes exp(x - shift); their sum. A term is off by (2 + |x - shift|) units of rounding.
inline double Exponentials(float* x, Index count, float shift) noexcept {
  const VF base = hn::Set(DF(), shift), log2_e = hn::Set(DF(), 1.442695040888963407f);
  WideSum sum;
  InVectors<lane_count>(count, [&](Index i, auto part, auto chain) RAPT_INLINED {
    const VF e = Exp2(DF(), hn::Mul(hn::Sub(LoadPart(x + i, part), base), log2_e));
    StorePart(e, x + i, part);
    sum.chain[chain] = hn::Add(sum.chain[chain], Folded(Present(DF(), e, part)));
  });
  return sum.Total();
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
