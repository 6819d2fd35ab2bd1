// Numbers of other types than f32: four at a time on their way into a packed layout, whole rows on
// their way out. Nothing here depends on how the CPU treats denormals.
#if defined(RAPT_NUMBER_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_NUMBER_INL_H
#undef RAPT_NUMBER_INL_H
#else
#define RAPT_NUMBER_INL_H
#endif

#include <cstring>

#include "hwy/highway.h"
#include "kernels/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace rapt {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const float* from) {
  return hn::LoadU(d, from);
}

/// 16-bit numbers in the lanes of 32-bit integers.
template <class D>
HWY_INLINE auto LoadHalves(D, const void* from) {
  const hn::RebindToUnsigned<D> d32;
  const hn::Rebind<std::uint16_t, D> d16;
  return hn::PromoteTo(d32, hn::LoadU(d16, static_cast<const std::uint16_t*>(from)));
}

template <class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const Bf16* from) {
  return hn::BitCast(d, hn::ShiftLeft<16>(LoadHalves(d, from)));
}

template <class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const F16* from) {
  const hn::RebindToUnsigned<D> d32;
  const hn::RebindToSigned<D> di;
  const auto all = LoadHalves(d, from);
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

inline void StoreNumbers(const float* from, Index count, Type type, void* to) noexcept {
  if (type == Type::f32) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
  } else if (type == Type::bf16) {
    for (Index i = 0; i < count; ++i) static_cast<Bf16*>(to)[i] = Bf16(from[i]);
  } else {
    for (Index i = 0; i < count; ++i) static_cast<F16*>(to)[i] = F16(from[i]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt
HWY_AFTER_NAMESPACE();
#endif
