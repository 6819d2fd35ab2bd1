// Queries and probabilities in fixed point, split into bytes for products with int8 pages.
#if defined(RAPT_INT8_QUERY_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_INT8_QUERY_INL_H
#undef RAPT_INT8_QUERY_INL_H
#else
#define RAPT_INT8_QUERY_INL_H
#endif

#include <cstring>

#include "base/sizes.h"
#include "kernels/decode/int8_pack-inl.h"
#include "kernels/decode_kernels.h"
#include "kernels/tiles/matmul-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3

/// Bytes of a number in fixed point.
inline constexpr int digits = 3;

/// Adds four products to each lane: `bytes` are unsigned, `codes` signed. Assembly because
/// Highway's AVX-512 target does not include the instruction.
HWY_INLINE VInts AddInt8Products(VInts sums, VInts bytes, VInts codes) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sums.raw) : "v"(bytes.raw), "v"(codes.raw));
  return sums;
}

/// The bits of a number's magnitude: they are ordered as magnitudes are, with NaN above all.
HWY_INLINE VInts SizeBits(VF x) { return hn::BitCast(DInts(), hn::Abs(x)); }

/// The largest lane in all lanes.
HWY_INLINE VInts LargestLane(VInts x) {
  return VInts{_mm512_set1_epi32(_mm512_reduce_max_epi32(x.raw))};
}

/// Powers of two: x * up is x as a multiple of step.
struct Steps {
  VF up, step;  // step: NaN if a number is infinite or NaN
};

/// Steps in which the largest number takes `top` + 1 bits; `carry` is added to its bits before, so
/// that numbers just below a power of two may count as that power.
template <int top, std::int32_t carry>
HWY_INLINE Steps StepsFor(VInts largest) {
  const DInts di;
  const DF d;
  const VInts power = hn::And(hn::Add(largest, hn::Set(di, carry)), hn::Set(di, 0x7F800000));
  const VInts safe = hn::Max(power, hn::Set(di, (top + 1) << 23));  // both stay normal numbers
  const VF step = hn::BitCast(d, hn::Sub(safe, hn::Set(di, top << 23)));
  return {hn::BitCast(d, hn::Sub(hn::Set(di, (254 + top) << 23), safe)),
          hn::MulAdd(hn::BitCast(d, largest), hn::Zero(d), step)};
}

HWY_INLINE VInts Nearest(VF x) { return VInts{_mm512_cvtps_epi32(x.raw)}; }

/// From sums of digits, the lowest first, to numbers. The lower two fit one lane: at most
/// 512 * 127 * 128 * 257, or 64 * 127 * 255 * 257.
HWY_INLINE VF Composed(const VInts (&sums)[digits]) {
  const DF d;
  const VInts low = hn::Add(hn::ShiftLeft<8>(sums[1]), sums[0]);
  return hn::MulAdd(hn::ConvertTo(d, sums[2]), hn::Set(d, 65536.0f), hn::ConvertTo(d, low));
}

/// The first bytes of a packed query row.
struct Int8QueryHeader {
  std::int32_t
      start[digits];  // initial sums of digits: they correct for codes that are 128 too large
  float step;
};

/// Three signed bytes hold up to 0x7F7F7F: numbers that would round to more, from a fraction of
/// 0x7EFEFF on, get the next larger step.
HWY_INLINE Steps StepsOfQuery(VInts largest) { return StepsFor<22, 0x800000 - 0x7EFEFF>(largest); }

/// One row. Digits of four neighbouring columns are in one word, as their codes are.
HWY_INLINE void PackInt8Query(const float* query, Index dim, std::byte* out) {
  const DF d;
  const DInts di;
  const hn::Repartition<std::uint8_t, DInts> d8;
  alignas(16) static constexpr std::uint8_t together[16] = {0, 4, 8,  12, 1, 5, 9,  13,
                                                            2, 6, 10, 14, 3, 7, 11, 15};
  const auto load = [&](Index c) {
    return hn::MaskedLoad(hn::FirstN(d, to_size(dim - c)), d, query + c);
  };
  VInts largest = hn::Zero(di);
  for (Index c = 0; c < dim; c += lane_count) largest = hn::Max(largest, SizeBits(load(c)));
  const Steps steps = StepsOfQuery(LargestLane(largest));
  const VInts middle = hn::Set(di, 0x808080);
  VInts sums = hn::Zero(di);
  std::byte* words = out + sizeof(Int8QueryHeader);
  for (Index c = 0; c < dim; c += lane_count, words += 64) {
    const VInts whole = Nearest(hn::Mul(load(c), steps.up));
    const VInts bytes = hn::Xor(hn::Add(whole, middle), middle);
    const auto four = hn::TableLookupBytes(hn::BitCast(d8, bytes), hn::LoadDup128(d8, together));
    sums = AddInt8Products(sums, hn::Set(di, 0x01010101), hn::BitCast(di, four));
    hn::StoreU(four, d8, reinterpret_cast<std::uint8_t*>(words));
  }
  alignas(64) std::int32_t of[lane_count];
  hn::Store(sums, di, of);
  Int8QueryHeader about{{}, hn::GetLane(steps.step)};
  for (int t = 0; t < digits; ++t)
    about.start[t] = -128 * (of[t] + of[4 + t] + of[8 + t] + of[12 + t]);
  std::memcpy(out, &about, sizeof about);
}

inline void PackInt8Queries(const float* queries, Index rows, Index dim, std::byte* out) noexcept {
  const Index stride = DecodeKernels::query_stride(dim);
  for (Index r = 0; r < rows; ++r)
    PackInt8Query(queries + r * stride, dim, out + r * int8_query_bytes(dim));
}

/// Probabilities times the scales of their values, as integers.
struct Int8Weights {
  // [rows][digits][16] of four slots each, the slots of a word of values
  alignas(64) std::int32_t words[FullPage::max_rows][digits][word_gap];
  float step[FullPage::max_rows];
};

/// out[t]: bytes t of four vectors, adjacent in each lane.
HWY_INLINE void TransposeBytes(const VInts (&x)[4], VInts (&out)[digits]) {
  const DInts di;
  const VInts lower = hn::Set(di, 0xFFFF);
  const hn::Repartition<std::uint8_t, DInts> d8;
  alignas(16) static constexpr std::uint8_t swap[16] = {0, 2,  1, 3,  4,  6,  5,  7,
                                                        8, 10, 9, 11, 12, 14, 13, 15};
  const auto table = hn::LoadDup128(d8, swap);
  const auto halves = [&](VInts a, VInts b) {
    const VInts both = hn::Or(hn::And(a, lower), hn::ShiftLeft<16>(b));
    return hn::BitCast(di, hn::TableLookupBytes(hn::BitCast(d8, both), table));
  };
  const auto upper = [&](VInts x) { return VInts{_mm512_srli_epi32(x.raw, 16)}; };
  const VInts first = halves(x[0], x[1]), second = halves(x[2], x[3]);
  out[0] = hn::Or(hn::And(first, lower), hn::ShiftLeft<16>(second));
  out[1] = hn::Or(upper(first), hn::AndNot(lower, second));
  out[2] = hn::Or(hn::Or(upper(x[0]), hn::ShiftLeft<8>(upper(x[1]))),
                  hn::Or(hn::AndNot(lower, x[2]), hn::ShiftLeft<8>(hn::AndNot(lower, x[3]))));
}

/// Weights are not negative: 24 unsigned bits, in which the largest loses nothing.
HWY_INLINE void PackInt8Weights(const float* probabilities, const float* scales, Index row,
                                Int8Weights& to) {
  const DF d;
  const DInts di;
  constexpr int vectors = tile / lane_count;
  static_assert(vectors == 4 && lane_count == word_gap);
  VF weight[vectors];
  VInts largest = hn::Zero(di);
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    weight[v] =
        hn::Mul(hn::Load(d, probabilities + v * lane_count), hn::LoadU(d, scales + v * lane_count));
    largest = hn::Max(largest, SizeBits(weight[v]));
  }
  const Steps steps = StepsFor<23, 0>(LargestLane(largest));
  VInts whole[vectors], words[digits];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) whole[v] = Nearest(hn::Mul(weight[v], steps.up));
  TransposeBytes(whole, words);
#pragma GCC unroll 3
  for (int t = 0; t < digits; ++t) hn::Store(words[t], di, to.words[row][t]);
  to.step[row] = hn::GetLane(steps.step);
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
