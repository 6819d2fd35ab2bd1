// Sums and multiples of vectors: each number is read once and written once; memory is the limit.
#if defined(RAPT_ELEMENTWISE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_ELEMENTWISE_INL_H
#undef RAPT_ELEMENTWISE_INL_H
#else
#define RAPT_ELEMENTWISE_INL_H
#endif

#include "kernels/common/vector_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline void SumLines(const float* a, const float* b, Index count, float* y) noexcept {
  InVectors<lane_count>(count, [&](Index i, auto part, auto) RAPT_INLINED {
    StorePart(hn::Add(LoadPart(a + i, part), LoadPart(b + i, part)), y + i, part);
  });
}

inline void AddLine(float* to, const float* more, Index count) noexcept {
  SumLines(to, more, count, to);
}

inline void ScaleLine(const float* x, float factor, Index count, float* y) noexcept {
  const VF f = hn::Set(DF(), factor);
  InVectors<lane_count>(count, [&](Index i, auto part, auto) RAPT_INLINED {
    StorePart(hn::Mul(LoadPart(x + i, part), f), y + i, part);
  });
}

inline void AffineLine(float* x, Index count, float factor, float shift) noexcept {
  const VF f = hn::Set(DF(), factor), s = hn::Set(DF(), shift);
  InVectors<lane_count>(count, [&](Index i, auto part, auto) RAPT_INLINED {
    StorePart(hn::MulAdd(LoadPart(x + i, part), f, s), x + i, part);
  });
}

inline void AddRows(const float* parts, Index count, Index stride, Index width,
                    float* to) noexcept {
  InVectors<wide_count>(width, [&](Index c, auto part, auto) RAPT_INLINED {
    VW sum = hn::Zero(DW());
    for (Index i = 0; i < count; ++i) sum = hn::Add(sum, LoadWide(parts + i * stride + c, part));
    StoreNarrow(hn::Add(sum, LoadWide(to + c, part)), to + c, part);
  });
}

inline double LineSum(const float* x, Index count) noexcept {
  WideSum sum;
  InVectors<wide_count>(count, [&](Index i, auto part, auto chain) RAPT_INLINED {
    sum.chain[chain] = hn::Add(sum.chain[chain], LoadWide(x + i, part));
  });
  return sum.Total();
}

inline double SumSquares(const float* x, Index count) noexcept {
  WideSum sum;
  InVectors<wide_count>(count, [&](Index i, auto part, auto chain) RAPT_INLINED {
    const VW number = LoadWide(x + i, part);
    sum.chain[chain] = hn::MulAdd(number, number, sum.chain[chain]);
  });
  return sum.Total();
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
