// Rotary positions of bf16 rows where the CPU rounds to bf16 by itself (AVX512-BF16): half the
// operations of rope-inl.h, which do not wait for memory but memory for them.
#if defined(RAPT_ROPE_WORDS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_ROPE_WORDS_INL_H
#undef RAPT_ROPE_WORDS_INL_H
#else
#define RAPT_ROPE_WORDS_INL_H
#endif

#include "kernels/common/bf16_rounding-inl.h"
#include "kernels/nn/rope-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3

enum class RotaryWay { forward, backward };

/// (a, b) turned; backward by the negative angle.
template <RotaryWay way>
HWY_INLINE void TurnPair(VF c, VF s, VF& a, VF& b) {
  const VF was = a;
  if constexpr (way == RotaryWay::forward) {
    a = hn::MulSub(a, c, hn::Mul(b, s));
    b = hn::MulAdd(was, s, hn::Mul(b, c));
  } else {
    a = hn::MulAdd(a, c, hn::Mul(b, s));
    b = hn::NegMulAdd(was, s, hn::Mul(b, c));
  }
}

template <RotaryWay way>
HWY_INLINE Index TurnWords(const FarPairs& at, const Bf16* x, const float* turn, Bf16* y) {
  const DF d;
  Index i = 0;
  for (; i + 2 * lane_count <= at.pairs; i += 2 * lane_count) {
    VF a[2], b[2];
#pragma GCC unroll 2
    for (Index half = 0; half < 2; ++half) {
      const Index first = i + half * lane_count;
      at.Load(d, x, first, a[half], b[half]);
      TurnPair<way>(hn::LoadU(d, turn + first), hn::LoadU(d, turn + at.pairs + first), a[half],
                    b[half]);
    }
    StoreHalves(RoundBoth(a[0], a[1]), y + i);
    StoreHalves(RoundBoth(b[0], b[1]), y + at.pairs + i);
  }
  return i;
}

template <RotaryWay way>
HWY_INLINE Index TurnWords(const NearPairs& at, const Bf16* x, const float* turn, Bf16* y) {
  const DF d;
  Index i = 0;
  for (; i + lane_count <= at.pairs; i += lane_count) {
    VF a, b;
    at.Load(d, x, i, a, b);
    TurnPair<way>(hn::LoadU(d, turn + i), hn::LoadU(d, turn + at.pairs + i), a, b);
    StoreHalves(RoundInTurn(a, b), y + 2 * i);
  }
  return i;
}

/// As Rotate; rows of other types than bf16 go its way.
template <class Pairs>
inline void RotateWords(const RotaryRows& rows) noexcept {
  if (rows.from_type != Type::bf16 || rows.to_type != Type::bf16) return Rotate<Pairs>(rows);
  const Pairs at{rows.pairs};
  for (Index row = 0; row < rows.count; ++row) {
    const auto* x = static_cast<const Bf16*>(rows.from) + row * rows.from_stride;
    auto* y = static_cast<Bf16*>(rows.to) + row * rows.to_stride;
    const float* turn = rows.turns[row * rows.turn_step];
    const Index i = rows.back ? TurnWords<RotaryWay::backward>(at, x, turn, y)
                              : TurnWords<RotaryWay::forward>(at, x, turn, y);
    TurnRest(at, x, turn, rows.back ? -1.0f : 1.0f, i, y);
    Pass(x, 2 * rows.pairs, rows.dim, y);
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace rapt
HWY_AFTER_NAMESPACE();
#endif
