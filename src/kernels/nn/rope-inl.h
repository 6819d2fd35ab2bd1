// Rotary positions: pairs of channels rotated by angles from a table.
//
// Traffic per row of `dim` numbers: the row read once and written once, `pairs` cosines and sines
// read, which stay in L1 while several heads pass. Four multiply-adds a pair: memory bandwidth is
// the limit.
#if defined(RAPT_ROPE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_ROPE_INL_H
#undef RAPT_ROPE_INL_H
#else
#define RAPT_ROPE_INL_H
#endif

#include <type_traits>

#include "kernels/common/convert-inl.h"
#include "kernels/rope_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Rotated numbers in the upper halves of words. Rotation leaves the lower half of a NaN as it was,
/// and in numbers that come from bf16 that half is 0.
template <class From, class D>
HWY_INLINE Words<D> RoundRotated(D d, hn::Vec<D> x) {
  if constexpr (std::is_same_v<From, Bf16>) {
    return RoundShortNanToBf16(d, x);
  } else {
    return RoundToBf16(d, x);
  }
}

template <class From, class D, class Number>
HWY_INLINE void StoreRotated(hn::Vec<D> x, D d, Number* to) {
  StoreFloats(x, d, to);
}
template <class From, class D>
HWY_INLINE void StoreRotated(hn::Vec<D> x, D d, Bf16* to) {
  const hn::Rebind<std::uint16_t, D> d16;
  hn::StoreU(Pack16(d, hn::ShiftRight<16>(RoundRotated<From>(d, x))), d16,
             reinterpret_cast<std::uint16_t*>(to));
}

/// Pair i is (x[i], x[i + pairs]).
struct HalfSplitPairs {
  template <class D, class Number>
  HWY_INLINE void Load(D d, const Number* x, Index i, hn::Vec<D>& a, hn::Vec<D>& b) const {
    a = LoadFloats(d, x + i);
    b = LoadFloats(d, x + pairs + i);
  }
  template <class From, class D, class Number>
  HWY_INLINE void Store(D d, Number* y, Index i, hn::Vec<D> a, hn::Vec<D> b) const {
    StoreRotated<From>(a, d, y + i);
    StoreRotated<From>(b, d, y + pairs + i);
  }
  Index pairs;
};

/// Pair i is (x[2 i], x[2 i + 1]).
struct InterleavedPairs {
  template <class D>
  HWY_INLINE void Load(D d, const float* x, Index i, hn::Vec<D>& a, hn::Vec<D>& b) const {
    hn::LoadInterleaved2(d, x + 2 * i, a, b);
  }
  template <class D, class Number>
  HWY_INLINE void Load(D d, const Number* x, Index i, hn::Vec<D>& a, hn::Vec<D>& b) const {
    const hn::Rebind<std::uint16_t, D> d16;
    Halves<D> first, second;
    hn::LoadInterleaved2(d16, reinterpret_cast<const std::uint16_t*>(x + 2 * i), first, second);
    a = Widen16(d, Number(), first);
    b = Widen16(d, Number(), second);
  }
  template <class From, class D>
  HWY_INLINE void Store(D d, float* y, Index i, hn::Vec<D> a, hn::Vec<D> b) const {
    hn::StoreInterleaved2(a, b, d, y + 2 * i);
  }
  template <class From, class D, class Number>
  HWY_INLINE void Store(D d, Number* y, Index i, hn::Vec<D> a, hn::Vec<D> b) const {
    const hn::Rebind<std::uint16_t, D> d16;
    hn::StoreInterleaved2(Narrow16(d, Number(), a), Narrow16(d, Number(), b), d16,
                          reinterpret_cast<std::uint16_t*>(y + 2 * i));
  }

#if HWY_TARGET != HWY_SCALAR
  // A pair of bf16 fills a word: each is a float once the other is shifted or masked out.
  template <class D>
  HWY_INLINE void Load(D d, const Bf16* x, Index i, hn::Vec<D>& a, hn::Vec<D>& b) const {
    const hn::RebindToUnsigned<D> d32;
    const hn::Repartition<std::uint16_t, D> d16;
    const auto words =
        hn::BitCast(d32, hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(x + 2 * i)));
    a = hn::BitCast(d, hn::ShiftLeft<16>(words));
    b = hn::BitCast(d, hn::And(words, hn::Set(d32, 0xFFFF0000u)));
  }
  template <class From, class D>
  HWY_INLINE void Store(D d, Bf16* y, Index i, hn::Vec<D> a, hn::Vec<D> b) const {
    const hn::RebindToUnsigned<D> d32;
    const hn::Repartition<std::uint16_t, D> d16;
    const auto words = hn::Or(hn::ShiftRight<16>(RoundRotated<From>(d, a)),
                              hn::And(RoundRotated<From>(d, b), hn::Set(d32, 0xFFFF0000u)));
    hn::StoreU(hn::BitCast(d16, words), d16, reinterpret_cast<std::uint16_t*>(y + 2 * i));
  }
#endif
  Index pairs;
};

/// Pairs from `i` on in whole vectors of D: (a, b) becomes (a c - b s, a s + b c). Returns the
/// first pair that is left. A sine times `side`, 1 or -1, is exact.
template <class D, class Pairs, class From, class To>
HWY_INLINE Index RotatePairs(D d, const Pairs& at, const From* x, const float* cos_sin, float side,
                             Index i, To* y) {
  constexpr Index step = hn::MaxLanes(D());
  const auto sided = hn::Set(d, side);
  for (; i + step <= at.pairs; i += step) {
    const auto c = hn::LoadU(d, cos_sin + i);
    const auto s = hn::Mul(hn::LoadU(d, cos_sin + at.pairs + i), sided);
    hn::Vec<D> a, b;
    at.Load(d, x, i, a, b);
    at.template Store<From>(d, y, i, hn::MulSub(a, c, hn::Mul(b, s)),
                            hn::MulAdd(a, s, hn::Mul(b, c)));
  }
  return i;
}

/// Pairs from `i` on, all of them.
template <class Pairs, class From, class To>
HWY_INLINE void RotateRest(const Pairs& at, const From* x, const float* cos_sin, float side,
                           Index i, To* y) {
  i = RotatePairs(hn::ScalableTag<float>(), at, x, cos_sin, side, i, y);
  i = RotatePairs(hn::CappedTag<float, 4>(), at, x, cos_sin, side, i, y);
  RotatePairs(hn::CappedTag<float, 1>(), at, x, cos_sin, side, i, y);
}

/// Copies the channels behind the pairs, converting their type.
template <class From, class To>
HWY_INLINE void CopyRest(const From* x, Index begin, Index end, To* y) {
  if (static_cast<const void*>(x) == static_cast<const void*>(y)) return;
  const hn::ScalableTag<float> d;
  constexpr Index step = hn::MaxLanes(hn::ScalableTag<float>());
  Index i = begin;
  for (; i + step <= end; i += step) StoreFloats(LoadFloats(d, x + i), d, y + i);
  for (; i < end; ++i) y[i] = static_cast<To>(static_cast<float>(x[i]));
}

template <class Pairs>
inline void Rotate(const RotaryRows& rows) noexcept {
  const Pairs at{rows.pairs};
  const float side = rows.inverse ? -1.0f : 1.0f;
  DispatchType(rows.from_type, [&]<class From>(From) {
    DispatchType(rows.to_type, [&]<class To>(To) {
      for (Index row = 0; row < rows.count; ++row) {
        const auto* x = static_cast<const From*>(rows.from) + row * rows.from_stride;
        auto* y = static_cast<To*>(rows.to) + row * rows.to_stride;
        const float* cos_sin = rows.cos_sin[row * rows.cos_sin_step];
        RotateRest(at, x, cos_sin, side, 0, y);
        CopyRest(x, 2 * rows.pairs, rows.dim, y);
      }
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
