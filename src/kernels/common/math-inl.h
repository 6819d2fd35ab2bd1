// exp2 and tanh for one SIMD target. Included once per target: no include guard but Highway's.
#if defined(RAPT_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_MATH_INL_H
#undef RAPT_MATH_INL_H
#else
#define RAPT_MATH_INL_H
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// max(low, x) and min(high, x) that let NaN through: x86 returns the second operand of an
/// unordered pair, other CPUs need a comparison.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V AtLeast(D d, float low, V x) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
  return hn::Max(hn::Set(d, low), x);
#else
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, low)), hn::Set(d, low), x);
#endif
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V AtMost(D d, float high, V x) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
  return hn::Min(hn::Set(d, high), x);
#else
  return hn::IfThenElse(hn::Gt(x, hn::Set(d, high)), hn::Set(d, high), x);
#endif
}

/// x[i] = 2^x[i] for x <= 127; exactly 1 at 0, exactly 0 below -126.5 and at -inf, NaN for NaN.
/// Within 1.25 ulp elsewhere.
///
/// x = n + f with n the nearest integer: adding the magic number leaves n + 127 in the low bits of
/// the sum, which shifted by 23 are the float 2^n. At n = -127 those bits are zero, so the smallest
/// results need no special case. Several vectors go through each step together: one alone waits for
/// its own latencies, and the scheduler is too small to look past it.
inline constexpr float exp2_terms[] = {0x1.41fbbcp-13f,
                                       0x1.5f3e54p-10f,
                                       0x1.3b2d4cp-7f,
                                       0x1.c6aee8p-5f,
                                       0x1.ebfbdcp-3f,
                                       0x1.62e430p-1f,
                                       1.0f};

/// p[i] = polynomial of f[i], highest power first.
template <class D, class V, int n>
HWY_INLINE void Exp2Polynomial(D d, const V (&f)[n], V (&p)[n]) {
#pragma GCC unroll 8
  for (int i = 0; i < n; ++i)
    p[i] = hn::MulAdd(hn::Set(d, exp2_terms[0]), f[i], hn::Set(d, exp2_terms[1]));
#pragma GCC unroll 8
  for (int term = 2; term < 7; ++term) {
#pragma GCC unroll 8
    for (int i = 0; i < n; ++i) p[i] = hn::MulAdd(p[i], f[i], hn::Set(d, exp2_terms[term]));
  }
}

template <class D, class V, int n>
HWY_INLINE void Exp2Each(D d, V (&x)[n]) {
  V f[n];
  V p[n];
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  // AVX-512 does the splitting itself: vreduce leaves x - n, exactly because n is the nearest
  // integer and not the next lower one, and vscalef multiplies by 2^n.
#pragma GCC unroll 8
  for (int i = 0; i < n; ++i) {
    f[i] = V{_mm512_reduce_ps(x[i].raw, 0x08)};
    x[i] = hn::Sub(x[i], f[i]);
  }
  Exp2Polynomial(d, f, p);
#pragma GCC unroll 8
  for (int i = 0; i < n; ++i) x[i] = V{_mm512_scalef_ps(p[i].raw, x[i].raw)};
#else
  const hn::RebindToSigned<D> di;
  const V magic = hn::Set(d, 12583039.0f);  // 1.5 * 2^23 + 127
#pragma GCC unroll 8
  for (int i = 0; i < n; ++i) {
    const V clamped = AtLeast(d, -127.0f, x[i]);
    x[i] = hn::Add(clamped, magic);
    f[i] = hn::Sub(clamped, hn::Sub(x[i], magic));
  }
  Exp2Polynomial(d, f, p);
#pragma GCC unroll 8
  for (int i = 0; i < n; ++i)
    x[i] = hn::Mul(p[i], hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, x[i]))));
#endif
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp2(D d, V x) {
  V one[1] = {x};
  Exp2Each(d, one);
  return one[0];
}

/// tanh(x), relative error below 2 ulp; an odd polynomial for small |x|, 1 - 2 / (1 + e^2|x|) where
/// any lane needs it. Each lane depends on its own x only.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Tanh(D d, V x) {
  const V x2 = hn::Mul(x, x);
  V p = hn::Set(d, -0x1.75e1c2p-8f);
  p = hn::MulAdd(p, x2, hn::Set(d, 0x1.522698p-6f));
  p = hn::MulAdd(p, x2, hn::Set(d, -0x1.b83c5ap-5f));
  p = hn::MulAdd(p, x2, hn::Set(d, 0x1.110726p-3f));
  p = hn::MulAdd(p, x2, hn::Set(d, -0x1.555532p-2f));
  const V small = hn::MulAdd(hn::Mul(p, x2), x, x);
  const V size = hn::Abs(x);
  const auto is_small = hn::Lt(size, hn::Set(d, 0.625f));
  if (HWY_LIKELY(hn::AllTrue(d, is_small))) return small;
  const V one = hn::Set(d, 1.0f);
  const V capped = AtMost(d, 10.0f, size);  // past 10 the answer is 1
  const V e = Exp2(d, hn::Mul(capped, hn::Set(d, 2.885390081777926814f)));
  const V large = hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(e, one)));
  return hn::IfThenElse(is_small, small, hn::CopySign(large, x));
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
