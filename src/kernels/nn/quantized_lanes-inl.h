// Eight interleaved weight rows, one in each lane of 32 bits, whatever the width of the registers.
#if defined(RAPT_QUANTIZED_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_QUANTIZED_LANES_INL_H
#undef RAPT_QUANTIZED_LANES_INL_H
#else
#define RAPT_QUANTIZED_LANES_INL_H
#endif

#include <cstring>

#include "kernels/common/convert-inl.h"
#include "kernels/tiles/matmul-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

using IntLanes = __m256i;    // 8 of 32 bits
using ShortLanes = __m256i;  // 16 of 16 bits: two for each row
using FloatLanes = __m256;

/// Codes by size and sign: the instruction that multiplies bytes takes one side without sign.
struct SignedCodes {
  __m256i size, sign;
};
struct NibbleCodes {
  __m256i lower, upper;
};

HWY_INLINE IntLanes ZeroInts() { return _mm256_setzero_si256(); }
HWY_INLINE ShortLanes ZeroShorts() { return _mm256_setzero_si256(); }
HWY_INLINE FloatLanes ZeroFloats() { return _mm256_setzero_ps(); }

HWY_INLINE __m256i LoadBytes(const std::byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
HWY_INLINE SignedCodes LoadSigned(const std::byte* from) {
  const __m256i codes = LoadBytes(from);
  return {_mm256_abs_epi8(codes), codes};
}
HWY_INLINE NibbleCodes LoadNibbles(const std::byte* from) {
  const __m256i codes = LoadBytes(from), mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(codes, mask), _mm256_and_si256(_mm256_srli_epi16(codes, 4), mask)};
}
/// Four activations for every row.
HWY_INLINE __m256i LoadFourInt8(const std::int8_t* x) {
  std::int32_t four;
  std::memcpy(&four, x, sizeof four);
  return _mm256_set1_epi32(four);
}

/// Keeps the order of additions: GCC's own needs forty registers.
HWY_INLINE __m256i InOrder(__m256i sum) {
  asm("" : "+x"(sum));
  return sum;
}

/// Two products are at most 2 * 128 * 127, which fits 16 bits.
HWY_INLINE IntLanes AddFourInt8(IntLanes sums, const SignedCodes& w, const std::int8_t* x) {
  const __m256i pairs = _mm256_maddubs_epi16(w.size, _mm256_sign_epi8(LoadFourInt8(x), w.sign));
  return InOrder(_mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))));
}
HWY_INLINE ShortLanes AddLower(ShortLanes sums, const NibbleCodes& w, const std::int8_t* x) {
  return InOrder(_mm256_add_epi16(sums, _mm256_maddubs_epi16(w.lower, LoadFourInt8(x))));
}
HWY_INLINE ShortLanes AddUpper(ShortLanes sums, const NibbleCodes& w, const std::int8_t* x) {
  return InOrder(_mm256_add_epi16(sums, _mm256_maddubs_epi16(w.upper, LoadFourInt8(x))));
}
HWY_INLINE IntLanes SumAdjacent(ShortLanes shorts) {
  return _mm256_madd_epi16(shorts, _mm256_set1_epi16(1));
}
HWY_INLINE IntLanes Subtract(IntLanes sums, std::int32_t x) {
  return _mm256_sub_epi32(sums, _mm256_set1_epi32(x));
}
HWY_INLINE FloatLanes LoadHalves(const std::byte* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
/// to + sums * (scale * factor)
HWY_INLINE FloatLanes AddScaled(FloatLanes to, IntLanes sums, FloatLanes scale, float factor) {
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), _mm256_mul_ps(scale, _mm256_set1_ps(factor)),
                         to);
}
HWY_INLINE FloatLanes AddProduct(FloatLanes to, FloatLanes x, float factor) {
  return _mm256_fmadd_ps(x, _mm256_set1_ps(factor), to);
}
HWY_INLINE void StoreFloats(FloatLanes x, float* to) { _mm256_storeu_ps(to, x); }

#if HWY_TARGET == HWY_AVX3

/// Codes of 8 bits, 128 more than they are: without sign.
HWY_INLINE __m256i LoadRaised(const std::byte* from) {
  return _mm256_xor_si256(LoadBytes(from), _mm256_set1_epi8(-128));
}
/// Adds the four products of bytes in each lane at once (AVX512-VNNI), four activations being
/// broadcast from memory. Assembly because Highway's AVX-512 target does not include it.
HWY_INLINE IntLanes AddFourVnni(IntLanes sums, __m256i w, const std::int8_t* x) {
  struct FourInt8 {
    std::int8_t of[4];
  };
  asm("vpdpbusd %2%{1to8%}, %1, %0"
      : "+v"(sums)
      : "v"(w), "m"(*reinterpret_cast<const FourInt8*>(x)));
  return sums;
}

#endif

#elif HWY_TARGET == HWY_SSE4

// The same in halves: rows 0 to 3 and 4 to 7.
struct IntLanes {
  __m128i of[2];
};
using ShortLanes = IntLanes;
struct FloatLanes {
  __m128 of[2];
};
struct SignedCodes {
  __m128i size[2], sign[2];
};
struct NibbleCodes {
  __m128i lower[2], upper[2];
};

HWY_INLINE IntLanes ZeroInts() { return {{_mm_setzero_si128(), _mm_setzero_si128()}}; }
HWY_INLINE ShortLanes ZeroShorts() { return ZeroInts(); }
HWY_INLINE FloatLanes ZeroFloats() { return {{_mm_setzero_ps(), _mm_setzero_ps()}}; }

HWY_INLINE __m128i LoadBytes(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
HWY_INLINE SignedCodes LoadSigned(const std::byte* from) {
  const __m128i first = LoadBytes(from), second = LoadBytes(from + 16);
  return {{_mm_abs_epi8(first), _mm_abs_epi8(second)}, {first, second}};
}
HWY_INLINE NibbleCodes LoadNibbles(const std::byte* from) {
  const __m128i mask = _mm_set1_epi8(15);
  NibbleCodes codes;
  for (int half = 0; half < 2; ++half) {
    const __m128i both = LoadBytes(from + 16 * half);
    codes.lower[half] = _mm_and_si128(both, mask);
    codes.upper[half] = _mm_and_si128(_mm_srli_epi16(both, 4), mask);
  }
  return codes;
}
HWY_INLINE __m128i LoadFourInt8(const std::int8_t* x) {
  std::int32_t four;
  std::memcpy(&four, x, sizeof four);
  return _mm_set1_epi32(four);
}
HWY_INLINE __m128i InOrder(__m128i sum) {
  asm("" : "+x"(sum));
  return sum;
}

HWY_INLINE IntLanes AddFourInt8(IntLanes sums, const SignedCodes& w, const std::int8_t* x) {
  const __m128i four = LoadFourInt8(x);
  for (int half = 0; half < 2; ++half) {
    const __m128i pairs = _mm_maddubs_epi16(w.size[half], _mm_sign_epi8(four, w.sign[half]));
    sums.of[half] = InOrder(_mm_add_epi32(sums.of[half], _mm_madd_epi16(pairs, _mm_set1_epi16(1))));
  }
  return sums;
}
HWY_INLINE ShortLanes AddNibbles(ShortLanes sums, const __m128i (&w)[2], const std::int8_t* x) {
  const __m128i four = LoadFourInt8(x);
  for (int half = 0; half < 2; ++half)
    sums.of[half] = InOrder(_mm_add_epi16(sums.of[half], _mm_maddubs_epi16(w[half], four)));
  return sums;
}
HWY_INLINE ShortLanes AddLower(ShortLanes sums, const NibbleCodes& w, const std::int8_t* x) {
  return AddNibbles(sums, w.lower, x);
}
HWY_INLINE ShortLanes AddUpper(ShortLanes sums, const NibbleCodes& w, const std::int8_t* x) {
  return AddNibbles(sums, w.upper, x);
}
HWY_INLINE IntLanes SumAdjacent(ShortLanes shorts) {
  const __m128i ones = _mm_set1_epi16(1);
  return {{_mm_madd_epi16(shorts.of[0], ones), _mm_madd_epi16(shorts.of[1], ones)}};
}
HWY_INLINE IntLanes Subtract(IntLanes sums, std::int32_t x) {
  const __m128i all = _mm_set1_epi32(x);
  return {{_mm_sub_epi32(sums.of[0], all), _mm_sub_epi32(sums.of[1], all)}};
}
HWY_INLINE FloatLanes LoadHalves(const std::byte* from) {
  const hn::Rebind<std::uint16_t, DF> d16;
  const auto* halves = reinterpret_cast<const std::uint16_t*>(from);
  return {{Widen16(DF(), F16(), hn::LoadU(d16, halves)).raw,
           Widen16(DF(), F16(), hn::LoadU(d16, halves + 4)).raw}};
}
HWY_INLINE FloatLanes AddScaled(FloatLanes to, IntLanes sums, FloatLanes scale, float factor) {
  for (int half = 0; half < 2; ++half)
    to.of[half] =
        _mm_add_ps(to.of[half], _mm_mul_ps(_mm_cvtepi32_ps(sums.of[half]),
                                           _mm_mul_ps(scale.of[half], _mm_set1_ps(factor))));
  return to;
}
HWY_INLINE FloatLanes AddProduct(FloatLanes to, FloatLanes x, float factor) {
  for (int half = 0; half < 2; ++half)
    to.of[half] = _mm_add_ps(to.of[half], _mm_mul_ps(x.of[half], _mm_set1_ps(factor)));
  return to;
}
HWY_INLINE void StoreFloats(FloatLanes x, float* to) {
  _mm_storeu_ps(to, x.of[0]);
  _mm_storeu_ps(to + 4, x.of[1]);
}

#else

// Arrays, which compilers vectorize.
struct IntLanes {
  std::int32_t of[8];
};
using ShortLanes = IntLanes;
struct FloatLanes {
  float of[8];
};
struct SignedCodes {
  std::int8_t of[32];
};
struct NibbleCodes {
  std::int8_t lower[32], upper[32];
};

HWY_INLINE IntLanes ZeroInts() { return {}; }
HWY_INLINE ShortLanes ZeroShorts() { return {}; }
HWY_INLINE FloatLanes ZeroFloats() { return {}; }

HWY_INLINE SignedCodes LoadSigned(const std::byte* from) {
  SignedCodes codes;
  std::memcpy(codes.of, from, sizeof codes.of);
  return codes;
}
HWY_INLINE NibbleCodes LoadNibbles(const std::byte* from) {
  NibbleCodes codes;
  for (int i = 0; i < 32; ++i) {
    codes.lower[i] = static_cast<std::int8_t>(from[i] & std::byte{15});
    codes.upper[i] = static_cast<std::int8_t>(from[i] >> 4);
  }
  return codes;
}
HWY_INLINE IntLanes AddFourProducts(const IntLanes& sums, const std::int8_t* w,
                                    const std::int8_t* x) {
  IntLanes out;
  for (int row = 0; row < 8; ++row)
    out.of[row] = sums.of[row] + w[4 * row] * x[0] + w[4 * row + 1] * x[1] + w[4 * row + 2] * x[2] +
                  w[4 * row + 3] * x[3];
  return out;
}
HWY_INLINE IntLanes AddFourInt8(const IntLanes& sums, const SignedCodes& w, const std::int8_t* x) {
  return AddFourProducts(sums, w.of, x);
}
HWY_INLINE ShortLanes AddLower(const ShortLanes& sums, const NibbleCodes& w, const std::int8_t* x) {
  return AddFourProducts(sums, w.lower, x);
}
HWY_INLINE ShortLanes AddUpper(const ShortLanes& sums, const NibbleCodes& w, const std::int8_t* x) {
  return AddFourProducts(sums, w.upper, x);
}
HWY_INLINE IntLanes SumAdjacent(const ShortLanes& shorts) { return shorts; }
HWY_INLINE IntLanes Subtract(const IntLanes& sums, std::int32_t x) {
  IntLanes out;
  for (int row = 0; row < 8; ++row) out.of[row] = sums.of[row] - x;
  return out;
}
HWY_INLINE FloatLanes LoadHalves(const std::byte* from) {
  std::uint16_t halves[8];
  std::memcpy(halves, from, sizeof halves);
  FloatLanes out;
  const DF d;
  for (int row = 0; row < 8; row += static_cast<int>(lane_count))
    hn::StoreU(Widen16(d, F16(), hn::LoadU(hn::Rebind<std::uint16_t, DF>(), halves + row)), d,
               out.of + row);
  return out;
}
HWY_INLINE FloatLanes AddScaled(const FloatLanes& to, const IntLanes& sums, const FloatLanes& scale,
                                float factor) {
  FloatLanes out;
  for (int row = 0; row < 8; ++row)
    out.of[row] = to.of[row] + static_cast<float>(sums.of[row]) * (scale.of[row] * factor);
  return out;
}
HWY_INLINE FloatLanes AddProduct(const FloatLanes& to, const FloatLanes& x, float factor) {
  FloatLanes out;
  for (int row = 0; row < 8; ++row) out.of[row] = to.of[row] + x.of[row] * factor;
  return out;
}
HWY_INLINE void StoreFloats(const FloatLanes& x, float* to) { std::memcpy(to, x.of, sizeof x.of); }

#endif

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
