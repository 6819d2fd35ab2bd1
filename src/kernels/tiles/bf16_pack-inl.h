// The layout of bf16 tiles, the same on every instruction set: two numbers in a 32-bit word. Tile
// products of bf16 sum over both, and a shift and a mask make two f32 vectors of a vector of words.
//
//   panels  [depth / 2][64] words: (c / 2, slot) holds k[slot][c] for an even c and for c + 1
//   rows    [2][16][width] words: (g, i, c) holds v[32 g + i][c] and v[32 g + 16 + i][c]
//
// The first number is in the lower half. What is beyond the rows and columns given is 0.
#if defined(RAPT_BF16_PACK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_BF16_PACK_INL_H
#undef RAPT_BF16_PACK_INL_H
#else
#define RAPT_BF16_PACK_INL_H
#endif

#include <cstring>

#include "base/sizes.h"
#include "kernels/common/convert-inl.h"
#include "kernels/common/pack-inl.h"
#include "kernels/tiles/matmul-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Remembers whether any half of a word had the exponent of infinity and NaN.
template <class D32>
struct Bf16FiniteCheck {
  hn::Vec<D32> special;
  std::uint32_t rest;
  HWY_INLINE Bf16FiniteCheck() : special(hn::Zero(D32())), rest(0) {}
  HWY_INLINE void See(hn::Vec<D32> words) {
    const D32 d;
    // The sum carries into a half's topmost bit, and no further.
    const auto exponents = hn::And(words, hn::Set(d, 0x7F807F80u));
    special = hn::Or(special, hn::Add(exponents, hn::Set(d, 0x00800080u)));
  }
  HWY_INLINE void See(std::uint32_t word) { rest |= (word & 0x7F807F80u) + 0x00800080u; }
  HWY_INLINE bool Finite() const {
    const D32 d;
    const auto bits = hn::And(special, hn::Set(d, 0x80008000u));
    return hn::AllTrue(d, hn::Eq(bits, hn::Zero(d))) && (rest & 0x80008000u) == 0;
  }
};

HWY_INLINE std::uint32_t Bf16Bits(Bf16 x) { return x.bits; }
HWY_INLINE std::uint32_t Bf16Bits(float x) { return Bf16(x).bits; }
HWY_INLINE std::uint32_t Bf16Bits(F16 x) { return Bf16(static_cast<float>(x)).bits; }

HWY_INLINE void StoreWord(std::uint32_t word, Bf16* out) {
  out[0].bits = static_cast<std::uint16_t>(word);
  out[1].bits = static_cast<std::uint16_t>(word >> 16);
}

template <class D32>
HWY_INLINE hn::Vec<D32> LoadWords(D32 d, const Bf16* from) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(d, from[0].bits | static_cast<std::uint32_t>(from[1].bits) << 16);
#else
  const hn::Repartition<std::uint16_t, D32> d16;
  return hn::BitCast(d, hn::LoadU(d16, &from->bits));
#endif
}

template <class D32>
HWY_INLINE void StoreWords(hn::Vec<D32> words, [[maybe_unused]] D32 d, Bf16* out) {
#if HWY_TARGET == HWY_SCALAR
  StoreWord(hn::GetLane(words), out);
#else
  const hn::Repartition<std::uint16_t, D32> d16;
  hn::StoreU(hn::BitCast(d16, words), d16, &out->bits);
#endif
}

/// The first numbers of the words, and the second.
template <class D>
HWY_INLINE hn::Vec<D> LowerBf16(D d, hn::Vec<hn::RebindToUnsigned<D>> words) {
  return hn::BitCast(d, hn::ShiftLeft<16>(words));
}
template <class D>
HWY_INLINE hn::Vec<D> UpperBf16(D d, hn::Vec<hn::RebindToUnsigned<D>> words) {
  return hn::BitCast(d, hn::And(words, hn::Set(hn::RebindToUnsigned<D>(), 0xFFFF0000u)));
}

/// Numbers as bf16, to nearest, in the upper halves of the lanes; the lower halves are 0.
template <class D, class T>
HWY_INLINE auto LoadUpperHalves(D d, const T* from) {
  const hn::RebindToUnsigned<D> d32;
  return hn::And(RoundToBf16(d, LoadFloats(d, from)), hn::Set(d32, 0xFFFF0000u));
}

template <class D>
HWY_INLINE auto LoadUpperHalves(D d, const Bf16* from) {
  return hn::BitCast(hn::RebindToUnsigned<D>(), LoadFloats(d, from));
}

#if HWY_TARGET != HWY_SCALAR
/// Eight numbers of a row as four words.
template <class D32, class T>
HWY_INLINE hn::Vec<D32> LoadBf16Words(D32 d, const T* from) {
  const hn::RebindToFloat<D32> df;
  const auto low = LoadUpperHalves(df, from);
  const auto high = LoadUpperHalves(df, from + 4);
  return hn::Or(hn::ShiftRight<16>(hn::ConcatEven(d, high, low)), hn::ConcatOdd(d, high, low));
}
template <class D32>
HWY_INLINE hn::Vec<D32> LoadBf16Words(D32 d, const Bf16* from) {
  return LoadWords(d, from);
}
#endif

using D4Words = hn::CappedTag<std::uint32_t, 4>;

/// Words of four rows, `out` pointing at the first row's slot.
template <class T>
HWY_INLINE void TransposeFourBf16Rows(const T* const (&rows)[4], Index dim, Bf16* out,
                                      Bf16FiniteCheck<D4Words>& check) {
  constexpr Index step = 2 * tile;
  Index c = 0;
#if HWY_TARGET != HWY_SCALAR
  const D4Words d;
  const hn::Repartition<std::uint64_t, D4Words> d2;
  for (; c + 8 <= dim; c += 8) {
    hn::Vec<D4Words> r[4];
    for (int i = 0; i < 4; ++i) {
      r[i] = LoadBf16Words(d, rows[i] + c);
      check.See(r[i]);
    }
    const auto low01 = hn::BitCast(d2, hn::InterleaveLower(d, r[0], r[1]));
    const auto low23 = hn::BitCast(d2, hn::InterleaveLower(d, r[2], r[3]));
    const auto high01 = hn::BitCast(d2, hn::InterleaveUpper(d, r[0], r[1]));
    const auto high23 = hn::BitCast(d2, hn::InterleaveUpper(d, r[2], r[3]));
    Bf16* to = out + c / 2 * step;
    StoreWords(hn::BitCast(d, hn::InterleaveLower(d2, low01, low23)), d, to);
    StoreWords(hn::BitCast(d, hn::InterleaveUpper(d2, low01, low23)), d, to + step);
    StoreWords(hn::BitCast(d, hn::InterleaveLower(d2, high01, high23)), d, to + 2 * step);
    StoreWords(hn::BitCast(d, hn::InterleaveUpper(d2, high01, high23)), d, to + 3 * step);
  }
#endif
  for (; c < dim; c += 2) {
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t second = c + 1 < dim ? Bf16Bits(rows[i][c + 1]) : 0;
      const std::uint32_t word = Bf16Bits(rows[i][c]) | second << 16;
      check.See(word);
      StoreWord(word, out + c / 2 * step + 2 * i);
    }
  }
}

/// Sets slots [from, 64) of the words [first, end) to 0.
HWY_INLINE void ClearSlots(Bf16* out, Index first, Index end, Index from) {
  for (Index p = first; p < end; ++p)
    std::memset(static_cast<void*>(out + (p * tile + from) * 2), 0,
                to_size(tile - from) * 2 * sizeof(Bf16));
}

inline bool PackBf16Panels(const InputRows& rows, Index dim, Index half_depth, Bf16* out) noexcept {
  const Index used = (dim + 1) / 2;
  ClearSlots(out, used, half_depth, 0);
  if (rows.count == 0) {
    ClearSlots(out, 0, used, 0);
    return true;
  }
  return Dispatch(rows.data, rows.type, [&]<class Number>(const Number* data) {
    Bf16FiniteCheck<D4Words> check;
    for (Index slot = 0; slot < rows.count; slot += 4) {
      const SomeRows<Number, NoFactor, 4> four(data, rows, slot, nullptr);
      TransposeFourBf16Rows(four.rows, dim, out + 2 * slot, check);
    }
    if (rows.count < tile) ClearSlots(out, 0, used, rows.count);
    return check.Finite();
  });
}

using DWords = hn::RebindToUnsigned<DF>;

/// Words of two rows of `dim` numbers and zeros up to `width`. A null row is one of zeros; where
/// the first is null, so is the second.
template <class T>
HWY_INLINE void InterleaveRows(const T* first, const T* second, Index dim, Index width, Bf16* out,
                               Bf16FiniteCheck<DWords>& check) {
  const DF d;
  const DWords dw;
  if (first == nullptr) dim = 0;
  Index c = 0;
  for (; second != nullptr && c + lane_count <= dim; c += lane_count) {
    const auto words =
        hn::Or(hn::ShiftRight<16>(LoadUpperHalves(d, first + c)), LoadUpperHalves(d, second + c));
    check.See(words);
    StoreWords(words, dw, out + 2 * c);
  }
  for (; c < dim; ++c) {
    const std::uint32_t upper = second == nullptr ? 0 : Bf16Bits(second[c]) << 16;
    const std::uint32_t word = Bf16Bits(first[c]) | upper;
    check.See(word);
    StoreWord(word, out + 2 * c);
  }
  std::memset(static_cast<void*>(out + 2 * dim), 0, to_size(width - dim) * 2 * sizeof(Bf16));
}

inline bool PackBf16Rows(const InputRows& rows, Index dim, Index width, Bf16* out) noexcept {
  return Dispatch(rows.data, rows.type, [&](const auto* data) {
    const auto row = [&](Index slot) {
      return slot < rows.count ? data + slot * rows.stride : nullptr;
    };
    Bf16FiniteCheck<DWords> check;
    for (Index i = 0; i < bf16_word_rows; ++i)
      InterleaveRows(row(first_slot_of_word(i)), row(first_slot_of_word(i) + word_gap), dim, width,
                     out + 2 * i * width, check);
    return check.Finite();
  });
}

inline void UnpackBf16Panels(const Bf16* stored, Index dim, float* panels) noexcept {
  const DF d;
  for (Index first = 0; first < tile; first += panel_columns) {
    const Index width = std::min(panel_columns, tile - first);
    for (Index c = 0; c < dim; c += 2) {
      for (Index i = 0; i < width; i += lane_count) {
        const auto words = LoadWords(DWords(), stored + (c / 2 * tile + first + i) * 2);
        float* to = panels + first * dim + c * width + i;
        hn::StoreU(LowerBf16(d, words), d, to);
        if (c + 1 < dim) hn::StoreU(UpperBf16(d, words), d, to + width);
      }
    }
  }
}

inline void UnpackBf16Rows(const Bf16* stored, Index stored_width, Index width,
                           float* rows) noexcept {
  const DF d;
  for (Index first = 0; first < width; first += panel_columns) {
    const Index columns = std::min(panel_columns, width - first);
    for (Index i = 0; i < bf16_word_rows; ++i) {
      const Index slot = first_slot_of_word(i);
      for (Index c = 0; c < columns; c += lane_count) {
        const auto words = LoadWords(DWords(), stored + (i * stored_width + first + c) * 2);
        float* to = rows + first * tile + slot * columns + c;
        hn::StoreU(LowerBf16(d, words), d, to);
        hn::StoreU(UpperBf16(d, words), d, to + word_gap * columns);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
