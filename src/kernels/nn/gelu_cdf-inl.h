// The normal distribution function and its density for one SIMD target.
#if defined(RAPT_GELU_CDF_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_GELU_CDF_INL_H
#undef RAPT_GELU_CDF_INL_H
#else
#define RAPT_GELU_CDF_INL_H
#endif

#include "kernels/common/vector_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// 2^(high + low) for a sum between -200 and 0 that does not fit one number; 0 below 2^-126.5.
HWY_INLINE VF Exp2OfSum(VF high, VF low) {
  const DF d;
  const VF magic = hn::Set(d, 12583039.0f);  // 1.5 * 2^23 + 127, as in Exp2Each
  const VF shifted = hn::Add(AtLeast(d, -127.0f, hn::Add(high, low)), magic);
  VF f[1] = {hn::Add(hn::Sub(high, hn::Sub(shifted, magic)), low)};
  VF p[1];
  Exp2Polynomial(d, f, p);
  const hn::RebindToSigned<DF> di;
  return hn::Mul(p[0], hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

/// e^(-t^2/2) for 0 <= t <= 16. Cut to nine bits, t has a square that fits; so has its product with
/// the first five bits of log2(e) / 2. What was cut off is small, and so are its errors.
HWY_INLINE VF Bell(VF t) {
  const DF d;
  const hn::RebindToUnsigned<DF> du;
  constexpr double scale = 0.72134752044448170368;  // log2(e) / 2
  constexpr float scale_high = 0.71875f, scale_low = static_cast<float>(scale - 0.71875);
  const VF cut = hn::BitCast(d, hn::And(hn::BitCast(du, t), hn::Set(du, 0xFFFF8000u)));
  const VF square = hn::Mul(cut, cut);
  const VF rest = hn::Mul(hn::Add(t, cut), hn::Sub(t, cut));  // t^2 - cut^2
  const VF low = hn::MulAdd(rest, hn::Set(d, static_cast<float>(scale)),
                            hn::Mul(square, hn::Set(d, scale_low)));
  return Exp2OfSum(hn::Mul(square, hn::Set(d, -scale_high)), hn::Neg(low));
}

struct ValueAndDensity {
  VF value, density;
};
enum class Wanted { value, density };

/// Φ(x), off by at most 5 ulp and by at most 1e-7, with 0 where it is less than 2^-126; and its
/// density φ(x) = Φ'(x) if wanted.
///
/// Up to 1, 1/2 and an odd polynomial of x; beyond, t being |x|, Φ(-t) = e^(-t^2/2) P(s) / (t + 3)
/// with s = (t - 3) / (t + 3). Both polynomials are minimax fits of the relative error, 7e-10 and
/// 1.3e-8.
template <Wanted wanted = Wanted::value>
HWY_INLINE ValueAndDensity NormalCdf(VF x) {
  const DF d;
  const VF t = AtMost(d, 16.0f, hn::Abs(x));
  const VF t2 = hn::Mul(t, t);
  VF p = hn::Set(d, -0x1.00d526p-17f);
  p = hn::MulAdd(p, t2, hn::Set(d, 0x1.dbff10p-14f));
  p = hn::MulAdd(p, t2, hn::Set(d, -0x1.36fd42p-10f));
  p = hn::MulAdd(p, t2, hn::Set(d, 0x1.46ce4cp-7f));
  p = hn::MulAdd(p, t2, hn::Set(d, -0x1.105832p-4f));
  p = hn::MulAdd(p, t2, hn::Set(d, 0x1.988454p-2f));
  const VF near = hn::MulAdd(p, x, hn::Set(d, 0.5f));
  const VF bell = Bell(t);
  const VF three = hn::Set(d, 3.0f), one = hn::Set(d, 1.0f);
  const VF q = hn::Div(one, hn::Add(t, three));
  const VF s = hn::Mul(hn::Sub(t, three), q);
  VF r = hn::Set(d, -0x1.0b34b2p-10f);
  r = hn::MulAdd(r, s, hn::Set(d, 0x1.dc9068p-11f));
  r = hn::MulAdd(r, s, hn::Set(d, 0x1.c99062p-8f));
  r = hn::MulAdd(r, s, hn::Set(d, -0x1.563c78p-7f));
  r = hn::MulAdd(r, s, hn::Set(d, -0x1.8331d0p-5f));
  r = hn::MulAdd(r, s, hn::Set(d, 0x1.d71306p-3f));
  r = hn::MulAdd(r, s, hn::Set(d, -0x1.04c728p-1f));
  r = hn::MulAdd(r, s, hn::Set(d, 0x1.754a76p-1f));
  const VF tail = hn::Mul(hn::Mul(r, q), bell);
  const VF far = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail));
  const VF value = hn::IfThenElse(hn::Le(t, one), near, far);
  if constexpr (wanted == Wanted::value) return {value, value};
  return {value, hn::Mul(bell, hn::Set(d, 0.39894228040143267794f))};  // 1 / sqrt(2 pi)
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
