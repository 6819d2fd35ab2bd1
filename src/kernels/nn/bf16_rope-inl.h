// Rotary positions of bf16 rows where the CPU has an instruction that rounds to bf16 (AVX512-BF16):
// half the operations of rope-inl.h, which is limited by operations and not by memory.
#if defined(RAPT_BF16_ROPE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_BF16_ROPE_INL_H
#undef RAPT_BF16_ROPE_INL_H
#else
#define RAPT_BF16_ROPE_INL_H
#endif

#include "kernels/common/bf16_rounding-inl.h"
#include "kernels/nn/rope-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3

enum class RotaryDirection { forward, backward };

/// Rotates (a, b); backward by the negative angle.
template <RotaryDirection direction>
HWY_INLINE void RotatePair(VF c, VF s, VF& a, VF& b) {
  const VF was = a;
  if constexpr (direction == RotaryDirection::forward) {
    a = hn::MulSub(a, c, hn::Mul(b, s));
    b = hn::MulAdd(was, s, hn::Mul(b, c));
  } else {
    a = hn::MulAdd(a, c, hn::Mul(b, s));
    b = hn::NegMulAdd(was, s, hn::Mul(b, c));
  }
}

template <RotaryDirection direction>
HWY_INLINE Index RotatePairsBf16(const HalfSplitPairs& at, const Bf16* x, const float* cos_sin,
                                 Bf16* y) {
  const DF d;
  Index i = 0;
  for (; i + 2 * lane_count <= at.pairs; i += 2 * lane_count) {
    VF a[2], b[2];
#pragma GCC unroll 2
    for (Index half = 0; half < 2; ++half) {
      const Index first = i + half * lane_count;
      at.Load(d, x, first, a[half], b[half]);
      RotatePair<direction>(hn::LoadU(d, cos_sin + first), hn::LoadU(d, cos_sin + at.pairs + first),
                            a[half], b[half]);
    }
    StoreHalves(RoundBoth(a[0], a[1]), y + i);
    StoreHalves(RoundBoth(b[0], b[1]), y + at.pairs + i);
  }
  return i;
}

template <RotaryDirection direction>
HWY_INLINE Index RotatePairsBf16(const InterleavedPairs& at, const Bf16* x, const float* cos_sin,
                                 Bf16* y) {
  const DF d;
  Index i = 0;
  for (; i + lane_count <= at.pairs; i += lane_count) {
    VF a, b;
    at.Load(d, x, i, a, b);
    RotatePair<direction>(hn::LoadU(d, cos_sin + i), hn::LoadU(d, cos_sin + at.pairs + i), a, b);
    StoreHalves(RoundInterleaved(a, b), y + 2 * i);
  }
  return i;
}

/// As Rotate, which takes rows of other types than bf16.
template <class Pairs>
inline void RotateBf16(const RotaryRows& rows) noexcept {
  if (rows.from_type != Type::bf16 || rows.to_type != Type::bf16) return Rotate<Pairs>(rows);
  const Pairs at{rows.pairs};
  for (Index row = 0; row < rows.count; ++row) {
    const auto* x = static_cast<const Bf16*>(rows.from) + row * rows.from_stride;
    auto* y = static_cast<Bf16*>(rows.to) + row * rows.to_stride;
    const float* cos_sin = rows.cos_sin[row * rows.cos_sin_step];
    const Index i = rows.inverse ? RotatePairsBf16<RotaryDirection::backward>(at, x, cos_sin, y)
                                 : RotatePairsBf16<RotaryDirection::forward>(at, x, cos_sin, y);
    RotateRest(at, x, cos_sin, rows.inverse ? -1.0f : 1.0f, i, y);
    CopyRest(x, 2 * rows.pairs, rows.dim, y);
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
