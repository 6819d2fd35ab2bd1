// Activations and their slopes, alone or as gates. Each number is read once and written once; the
// dearest, gelu, takes about thirty operations for a vector.
#if defined(RAPT_ACTIVATION_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_ACTIVATION_INL_H
#undef RAPT_ACTIVATION_INL_H
#else
#define RAPT_ACTIVATION_INL_H
#endif

#include "kernels/nn/gelu_cdf-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// A function of a number and its slope there.
struct ValueAndSlope {
  VF value, slope;
};

struct Relu {
  static HWY_INLINE VF Value(VF x) { return AtLeast(DF(), 0.0f, x); }
  static HWY_INLINE ValueAndSlope Both(VF x) {
    const VF one = hn::Set(DF(), 1.0f);
    return {Value(x), hn::IfThenZeroElse(hn::Le(x, hn::Zero(DF())), one)};
  }
};

/// x Φ(x), off by at most 12 u of itself, u being 2^-24; its slope Φ(x) + x φ(x), by 12 u (Φ + |x|
/// φ).
struct Gelu {
  static HWY_INLINE VF Value(VF x) { return hn::Mul(x, NormalCdf(x).value); }
  static HWY_INLINE ValueAndSlope Both(VF x) {
    const ValueAndDensity normal = NormalCdf<Wanted::density>(x);
    // φ is 0 long before x is infinite, and infinity times 0 is not.
    const VF near = AtMost(DF(), 64.0f, AtLeast(DF(), -64.0f, x));
    return {hn::Mul(x, normal.value), hn::MulAdd(near, normal.density, normal.value)};
  }
};

/// 1 / (1 + e^-z) and 1 minus that, neither by subtraction.
struct Logistic {
  VF value, rest;
};
/// z is in units of log2. An error of z counts as often as z is large: what is made of these is off
/// by at most (8 + 4 |z|) u of the sizes of its terms.
HWY_INLINE Logistic LogisticOf(VF z) {
  const DF d;
  const VF one = hn::Set(d, 1.0f);
  const VF e = Exp2(d, hn::Neg(hn::Abs(z)));
  const VF large = hn::Div(one, hn::Add(one, e)), small = hn::Mul(e, large);
  const auto negative = hn::Lt(z, hn::Zero(d));
  return {hn::IfThenElse(negative, small, large), hn::IfThenElse(negative, large, small)};
}

inline constexpr float log2_of_e = 1.442695040888963407f;

struct Silu {
  static HWY_INLINE VF Value(VF x) {
    return hn::Mul(x, LogisticOf(hn::Mul(x, hn::Set(DF(), log2_of_e))).value);
  }
  static HWY_INLINE ValueAndSlope Both(VF x) {
    const DF d;
    const Logistic s = LogisticOf(hn::Mul(x, hn::Set(d, log2_of_e)));
    const VF near = AtMost(d, 128.0f, AtLeast(d, -128.0f, x));
    const VF bent = hn::MulAdd(near, s.rest, hn::Set(d, 1.0f));
    return {hn::Mul(x, s.value), hn::Mul(s.value, bent)};
  }
};

/// x / 2 (1 + tanh(a (x + b x^3))) is x times the logistic function of 2 a (x + b x^3).
struct GeluTanh {
  static constexpr double a = 0.79788456080286535588;  // sqrt(2 / pi)
  static constexpr double b = 0.044715;
  static constexpr double unit = 2 * a * 1.442695040888963407;
  // Past 64 the logistic function is 0 or 1; beyond, x^3 would overflow and spoil the slope.
  static HWY_INLINE VF Near(VF x) { return AtMost(DF(), 64.0f, AtLeast(DF(), -64.0f, x)); }

  static HWY_INLINE Logistic LogisticAt(VF near) {
    const VF bend = hn::MulAdd(hn::Set(DF(), static_cast<float>(unit * b)), hn::Mul(near, near),
                               hn::Set(DF(), static_cast<float>(unit)));
    return LogisticOf(hn::Mul(near, bend));
  }
  static HWY_INLINE VF Value(VF x) { return hn::Mul(x, LogisticAt(Near(x)).value); }
  static HWY_INLINE ValueAndSlope Both(VF x) {
    const DF d;
    const VF near = Near(x);
    const Logistic s = LogisticAt(near);
    const VF steep = hn::MulAdd(hn::Set(d, static_cast<float>(6 * a * b)), hn::Mul(near, near),
                                hn::Set(d, static_cast<float>(2 * a)));
    const VF bent = hn::MulAdd(hn::Mul(near, steep), s.rest, hn::Set(d, 1.0f));
    return {hn::Mul(x, s.value), hn::Mul(s.value, bent)};
  }
};

template <class Function>
inline void Activate(const float* x, Index count, float* y) noexcept {
  InVectors<lane_count>(count, [&](Index i, auto part, auto) RAPT_INLINED {
    StorePart(Function::Value(LoadPart(x + i, part)), y + i, part);
  });
}

template <class Function>
inline void ActivateBack(const float* x, Index count, float* dy) noexcept {
  InVectors<lane_count>(count, [&](Index i, auto part, auto) RAPT_INLINED {
    const VF slope = Function::Both(LoadPart(x + i, part)).slope;
    StorePart(hn::Mul(LoadPart(dy + i, part), slope), dy + i, part);
  });
}

template <class Function>
inline void Gate(const float* x, Index rows, Index width, float* y) noexcept {
  for (Index row = 0; row < rows; ++row, x += 2 * width, y += width) {
    InVectors<lane_count>(width, [&](Index i, auto part, auto) RAPT_INLINED {
      const VF passed = Function::Value(LoadPart(x + i, part));
      StorePart(hn::Mul(passed, LoadPart(x + width + i, part)), y + i, part);
    });
  }
}

template <class Function>
inline void GateBack(const float* x, const float* dy, Index rows, Index width, float* dx) noexcept {
  for (Index row = 0; row < rows; ++row, x += 2 * width, dx += 2 * width, dy += width) {
    InVectors<lane_count>(width, [&](Index i, auto part, auto) RAPT_INLINED {
      const ValueAndSlope f = Function::Both(LoadPart(x + i, part));
      const VF g = LoadPart(dy + i, part);
      StorePart(hn::Mul(hn::Mul(g, LoadPart(x + width + i, part)), f.slope), dx + i, part);
      StorePart(hn::Mul(g, f.value), dx + width + i, part);
    });
  }
}

inline void NormalCdfNumbers(const float* x, Index count, float* y) noexcept {
  InVectors<lane_count>(count, [&](Index i, auto part, auto) RAPT_INLINED {
    StorePart(NormalCdf(LoadPart(x + i, part)).value, y + i, part);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
