// AdamW in one pass: value, gradient and both moments read once, three of them written.
//
// In f64: 28 bytes of traffic for each number leave time for a division and a root of doubles, and
// a moment that is the small difference of larger numbers stays exact.
#if defined(RAPT_ADAM_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_ADAM_INL_H
#undef RAPT_ADAM_INL_H
#else
#define RAPT_ADAM_INL_H
#endif

#include "kernels/common/vector_tail-inl.h"
#include "kernels/network_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline void Adam(const AdamStep& step, const float* gradient, Index count, float* value,
                 float* first, float* second) noexcept {
  const DW d;
  const VW new1 = hn::Set(d, 1 - step.beta1);
  const VW old2 = hn::Set(d, step.beta2), new2 = hn::Set(d, 1 - step.beta2);
  const VW keep = hn::Set(d, step.keep), size = hn::Set(d, step.size);
  const VW inverse_root = hn::Set(d, step.inverse_root), epsilon = hn::Set(d, step.epsilon);
  const VW factor = hn::Set(d, step.gradient_factor);
  InVectors<wide_count>(count, [&](Index i, auto part, auto) RAPT_INLINED {
    const VW g = hn::Mul(LoadWide(gradient + i, part), factor);
    const VW m0 = LoadWide(first + i, part);
    const VW m = hn::MulAdd(new1, hn::Sub(g, m0), m0);
    const VW v = hn::MulAdd(old2, LoadWide(second + i, part), hn::Mul(new2, hn::Mul(g, g)));
    const VW root = hn::MulAdd(hn::Sqrt(v), inverse_root, epsilon);
    const VW update = hn::Div(hn::Mul(size, m), root);
    StoreNarrow(m, first + i, part);
    StoreNarrow(v, second + i, part);
    StoreNarrow(hn::MulSub(keep, LoadWide(value + i, part), update), value + i, part);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
