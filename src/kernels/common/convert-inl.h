// Conversion between f32 and the other types, a vector at a time. Nothing here depends on how the
// CPU treats denormals.
#if defined(RAPT_CONVERT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_CONVERT_INL_H
#undef RAPT_CONVERT_INL_H
#else
#define RAPT_CONVERT_INL_H
#endif

#include "hwy/highway.h"
#include "rapt/tensor.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const float* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const std::int8_t* from) {
  const hn::RebindToSigned<D> di;
  return hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(hn::Rebind<std::int8_t, D>(), from)));
}

/// Vectors of 16-bit and of 32-bit integers with as many lanes as D has floats.
template <class D>
using Halves = hn::Vec<hn::Rebind<std::uint16_t, D>>;
template <class D>
using Words = hn::Vec<hn::RebindToUnsigned<D>>;

/// 16-bit numbers of a type as floats.
template <class D>
HWY_INLINE hn::Vec<D> Widen16(D d, Bf16, Halves<D> halves) {
  const hn::RebindToUnsigned<D> d32;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, halves)));
}

// Converts f16 in hardware, rounding to nearest and blind to the mode of denormals.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
#define RAPT_NATIVE_F16 1
#else
#define RAPT_NATIVE_F16 0
#endif

template <class D>
HWY_INLINE hn::Vec<D> Widen16(D d, F16, Halves<D> halves) {
#if RAPT_NATIVE_F16
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), halves));
#else
  const hn::RebindToUnsigned<D> d32;
  const hn::RebindToSigned<D> di;
  const auto all = hn::PromoteTo(d32, halves);
  const auto size = hn::And(all, hn::Set(d32, 0x7FFF));
  const auto sign = hn::ShiftLeft<16>(hn::Xor(all, size));
  const auto normal = hn::Add(hn::ShiftLeft<13>(size), hn::Set(d32, 112u << 23));
  // Infinity and NaN have the largest exponent, here as there.
  const auto special = hn::Or(hn::ShiftLeft<13>(size), hn::Set(d32, 0x7F800000u));
  const auto small =
      hn::BitCast(d32, hn::Mul(hn::ConvertTo(d, hn::BitCast(di, size)), hn::Set(d, 0x1p-24f)));
  const auto is_small = hn::Lt(hn::BitCast(di, size), hn::Set(di, 0x400));
  const auto is_special = hn::Gt(hn::BitCast(di, size), hn::Set(di, 0x7BFF));
  const auto bits =
      hn::IfThenElse(hn::RebindMask(d32, is_small), small,
                     hn::IfThenElse(hn::RebindMask(d32, is_special), special, normal));
  return hn::BitCast(d, hn::Or(bits, sign));
#endif
}

/// Integers below 2^16 as 16-bit integers.
template <class D>
HWY_INLINE Halves<D> Pack16(D, Words<D> words) {
  const hn::RebindToSigned<D> di;
  return hn::DemoteTo(hn::Rebind<std::uint16_t, D>(), hn::BitCast(di, words));
}

/// Floats rounded to the nearest bf16, ties to even, in the upper halves of words. A NaN must have
/// nothing in its lower half, as those have that come from bf16.
template <class D>
HWY_INLINE Words<D> RoundShortNanToBf16(D, hn::Vec<D> x) {
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::BitCast(d32, x);
  // One more where the last bit that stays is set: a mask is -1, and cheaper than a shift.
  const auto odd = hn::VecFromMask(d32, hn::TestBit(bits, hn::Set(d32, 0x10000)));
  return hn::Sub(hn::Add(bits, hn::Set(d32, 0x7FFF)), odd);
}

/// The same with any NaN.
template <class D>
HWY_INLINE Words<D> RoundToBf16(D d, hn::Vec<D> x) {
  const hn::RebindToUnsigned<D> d32;
  const auto nan = hn::Or(hn::BitCast(d32, x), hn::Set(d32, 0x400000));
  return hn::IfThenElse(hn::RebindMask(d32, hn::IsNaN(x)), nan, RoundShortNanToBf16(d, x));
}

/// Floats rounded to the nearest 16-bit number, ties to even; NaN stays NaN.
template <class D>
HWY_INLINE Halves<D> Narrow16(D d, Bf16, hn::Vec<D> x) {
  return Pack16(d, hn::ShiftRight<16>(RoundToBf16(d, x)));
}

template <class D>
HWY_INLINE Halves<D> Narrow16([[maybe_unused]] D d, F16, hn::Vec<D> x) {
#if RAPT_NATIVE_F16
  const hn::Rebind<std::uint16_t, D> d16;
  return hn::BitCast(d16, hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), x));
#else
  const hn::RebindToUnsigned<D> d32;
  const hn::RebindToSigned<D> di;
  const auto all = hn::BitCast(d32, x);
  const auto size = hn::And(all, hn::Set(d32, 0x7FFFFFFF));
  const auto sign = hn::ShiftRight<16>(hn::Xor(all, size));
  const auto tie = hn::And(hn::ShiftRight<13>(size), hn::Set(d32, 1));
  const auto normal = hn::ShiftRight<13>(
      hn::Sub(hn::Add(size, hn::Add(tie, hn::Set(d32, 0xFFF))), hn::Set(d32, 112u << 23)));
  // Below 2^-14 a number is counted in steps of 2^-24, which is what adding 0.5 rounds to.
  const auto half = hn::Set(d, 0.5f);
  const auto small =
      hn::Sub(hn::BitCast(d32, hn::Add(hn::BitCast(d, size), half)), hn::BitCast(d32, half));
  const auto beyond = [&](int bits) {
    return hn::RebindMask(d32, hn::Gt(hn::BitCast(di, size), hn::Set(di, bits)));
  };
  auto bits = hn::IfThenElse(beyond(0x387FFFFF), normal, small);
  bits = hn::IfThenElse(beyond(0x477FEFFF), hn::Set(d32, 0x7C00), bits);  // 65520 and more
  bits = hn::IfThenElse(beyond(0x7F800000), hn::Set(d32, 0x7E00), bits);
  return Pack16(d, hn::Or(bits, sign));
#endif
}

template <class D, class Number>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const Number* from) {
  const hn::Rebind<std::uint16_t, D> d16;
  return Widen16(d, Number(), hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(from)));
}

template <class D>
HWY_INLINE void StoreFloats(hn::Vec<D> x, D d, float* to) {
  hn::StoreU(x, d, to);
}

template <class D, class Number>
HWY_INLINE void StoreFloats(hn::Vec<D> x, D d, Number* to) {
  const hn::Rebind<std::uint16_t, D> d16;
  hn::StoreU(Narrow16(d, Number(), x), d16, reinterpret_cast<std::uint16_t*>(to));
}

/// Calls with_numbers(typed pointer).
template <class WithNumbers>
HWY_INLINE auto Dispatch(const void* data, Type type, const WithNumbers& with_numbers) {
  switch (type) {
    case Type::bf16:
      return with_numbers(static_cast<const Bf16*>(data));
    case Type::f16:
      return with_numbers(static_cast<const F16*>(data));
    default:
      return with_numbers(static_cast<const float*>(data));
  }
}

inline void LoadNumbers(const void* from, Type type, Index count, float* to) noexcept {
  Dispatch(from, type, [&](const auto* numbers) {
    const hn::ScalableTag<float> d;
    constexpr Index step = hn::MaxLanes(hn::ScalableTag<float>());
    Index i = 0;
    for (; i + step <= count; i += step) hn::StoreU(LoadFloats(d, numbers + i), d, to + i);
    for (; i < count; ++i) to[i] = static_cast<float>(numbers[i]);
  });
}

#undef RAPT_NATIVE_F16

/// Calls with_type(a number of the type).
template <class WithType>
HWY_INLINE void DispatchType(Type type, const WithType& with_type) {
  if (type == Type::f32) return with_type(float());
  if (type == Type::bf16) return with_type(Bf16());
  with_type(F16());
}

inline void StoreNumbers(const float* from, Index count, Type type, void* to) noexcept {
  DispatchType(type, [&]<class Number>(Number) {
    const hn::ScalableTag<float> d;
    constexpr Index step = hn::MaxLanes(hn::ScalableTag<float>());
    auto* numbers = static_cast<Number*>(to);
    Index i = 0;
    for (; i + step <= count; i += step) StoreFloats(hn::LoadU(d, from + i), d, numbers + i);
    for (; i < count; ++i) numbers[i] = static_cast<Number>(from[i]);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
