// Loops over any count of numbers: whole vectors, then the tail through a small array, so that
// nothing is read or written beyond the end.
#if defined(RAPT_VECTOR_TAIL_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_VECTOR_TAIL_INL_H
#undef RAPT_VECTOR_TAIL_INL_H
#else
#define RAPT_VECTOR_TAIL_INL_H
#endif

#include <type_traits>

#include "base/sizes.h"
#include "kernels/tiles/softmax-inl.h"

#ifndef RAPT_INLINED
#define RAPT_INLINED __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DW = hn::ScalableTag<double>;
using VW = hn::Vec<DW>;
inline constexpr Index wide_count = hn::MaxLanes(DW());

/// How much of a vector is there: all of it, or only its first lanes.
struct Whole {};
struct Tail {
  Index count;
};

HWY_INLINE VF LoadPart(const float* x, Whole) { return hn::LoadU(DF(), x); }
HWY_INLINE VF LoadPart(const float* x, Tail tail) {
  float padded[lane_count] = {};
  for (Index i = 0; i < tail.count; ++i) padded[i] = x[i];
  return hn::LoadU(DF(), padded);
}
HWY_INLINE void StorePart(VF x, float* to, Whole) { hn::StoreU(x, DF(), to); }
HWY_INLINE void StorePart(VF x, float* to, Tail tail) {
  float padded[lane_count];
  hn::StoreU(x, DF(), padded);
  for (Index i = 0; i < tail.count; ++i) to[i] = padded[i];
}

/// f32 widened to as many doubles as a vector has.
HWY_INLINE VW LoadWide(const float* x, Whole) {
  const DW dw;
  return hn::PromoteTo(dw, hn::LoadU(hn::Rebind<float, DW>(), x));
}
HWY_INLINE VW LoadWide(const float* x, Tail tail) {
  float padded[wide_count] = {};
  for (Index i = 0; i < tail.count; ++i) padded[i] = x[i];
  return LoadWide(padded, Whole());
}
HWY_INLINE void StoreNarrow(VW x, float* to, Whole) {
  const hn::Rebind<float, DW> dn;
  hn::StoreU(Narrowed(dn, x), dn, to);
}
HWY_INLINE void StoreNarrow(VW x, float* to, Tail tail) {
  float padded[wide_count];
  StoreNarrow(x, padded, Whole());
  for (Index i = 0; i < tail.count; ++i) to[i] = padded[i];
}

/// Zero in the lanes that are not there.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Present(D, V x, Whole) {
  return x;
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Present(D d, V x, Tail tail) {
  return hn::IfThenElseZero(hn::FirstN(d, to_size(tail.count)), x);
}

/// Chains of sums that run in parallel: one alone would wait for each addition.
inline constexpr int chains = 4;

/// Calls each(first index, how much of the vector is there, chain) for all vectors.
template <Index step, class Each>
HWY_INLINE void InVectors(Index count, const Each& each) {
  Index i = 0;
  for (; i + chains * step <= count; i += chains * step) {
    each(i, Whole(), std::integral_constant<int, 0>());
    each(i + step, Whole(), std::integral_constant<int, 1>());
    each(i + 2 * step, Whole(), std::integral_constant<int, 2>());
    each(i + 3 * step, Whole(), std::integral_constant<int, 3>());
  }
  for (; i + step <= count; i += step) each(i, Whole(), std::integral_constant<int, 0>());
  if (i < count) each(i, Tail{count - i}, std::integral_constant<int, 0>());
}

/// Sums in f64.
struct WideSum {
  VW chain[chains];

  // An implicit constructor would be compiled for no target.
  HWY_INLINE WideSum() {
    for (VW& sum : chain) sum = hn::Zero(DW());
  }
  HWY_INLINE double Total() const {
    const VW all = hn::Add(hn::Add(chain[0], chain[1]), hn::Add(chain[2], chain[3]));
    return hn::GetLane(hn::SumOfLanes(DW(), all));
  }
};

/// The sum of the lanes' f64 values in as many f64 lanes as there are.
HWY_INLINE VW Folded(VF x) {
#if HWY_TARGET == HWY_SCALAR
  return hn::PromoteTo(DW(), x);
#else
  const hn::Half<DF> half;
  return hn::Add(hn::PromoteTo(DW(), hn::LowerHalf(half, x)),
                 hn::PromoteTo(DW(), hn::UpperHalf(half, x)));
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
