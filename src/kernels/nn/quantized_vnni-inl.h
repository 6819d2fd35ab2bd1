// Sixteen weight rows at once, for several rows of activations: AVX512-VNNI only.
//
// Narrow tiles read four activations for every eight products of four bytes and are bound by that;
// a tile of 16 weight rows and eight of activations reads half as much, and its scales are loaded
// once for eight rows. Per block and row of activations: 8 products of bytes, one conversion, two
// multiplications. The operations on a number are those of GroupTile, so the bits are the same.
#if defined(RAPT_QUANTIZED_VNNI_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_QUANTIZED_VNNI_INL_H
#undef RAPT_QUANTIZED_VNNI_INL_H
#else
#define RAPT_QUANTIZED_VNNI_INL_H
#endif

#include <bit>

#include "kernels/nn/quantized-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {

/// The same 32 bytes of two groups, which are `gap` bytes apart.
HWY_INLINE __m512i LoadBothBytes(const std::byte* from, Index gap) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(LoadBytes(from)), LoadBytes(from + gap), 1);
}
/// Scales or shifts of two groups.
HWY_INLINE __m512 LoadBothHalves(const std::byte* from, Index gap) {
  return _mm512_insertf32x8(_mm512_castps256_ps512(LoadHalves(from)), LoadHalves(from + gap), 1);
}
HWY_INLINE __m512i AddFourVnniWide(__m512i sums, __m512i w, const std::int8_t* x) {
  struct FourInt8 {
    std::int8_t of[4];
  };
  asm("vpdpbusd %2%{1to16%}, %1, %0"
      : "+v"(sums)
      : "v"(w), "m"(*reinterpret_cast<const FourInt8*>(x)));
  return sums;
}

/// Adds the products of one block to sums.
template <CodeBits bits, int rows>
HWY_INLINE void AddBlockWide(const std::byte* codes, Index gap, const std::int8_t* x,
                             __m512i (&sums)[rows]) {
  if constexpr (bits == CodeBits::eight) {
    const __m512i top = _mm512_set1_epi8(-128);
#pragma GCC unroll 8
    for (int four = 0; four < 8; ++four) {
      const __m512i w = _mm512_xor_si512(LoadBothBytes(codes + 32 * four, gap), top);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r)
        sums[r] = AddFourVnniWide(sums[r], w, x + r * quantized_block + 4 * four);
    }
  } else {
    const __m512i mask = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int four = 0; four < 4; ++four) {
      const __m512i both = LoadBothBytes(codes + 32 * four, gap);
      const __m512i lower = _mm512_and_si512(both, mask);
      const __m512i upper = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r)
        sums[r] = AddFourVnniWide(sums[r], lower, x + r * quantized_block + 4 * four);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r)
        sums[r] = AddFourVnniWide(sums[r], upper, x + r * quantized_block + 4 * four + 16);
    }
  }
}

/// What sums begin with, so that codes which are `zero` too large do not count.
template <std::int32_t zero>
HWY_INLINE __m512i MinusZeros(const std::int32_t& codes_sum) {
  if constexpr (zero == 0) return _mm512_setzero_si512();
  const __m512i sum = _mm512_set1_epi32(codes_sum);
  return _mm512_sub_epi32(_mm512_setzero_si512(),
                          _mm512_slli_epi32(sum, std::countr_zero(zero + 0u)));
}

/// Prefetches a part of the next two groups in address order. Reading both at a time is two
/// streams, each as long as one row of blocks: too short for the hardware prefetcher, so that
/// weights from memory came at half the speed of one stream, and four rows took longer than three.
HWY_INLINE void PrefetchPart(const std::byte* next, Index bytes) {
  for (Index at = 0; at < bytes; at += 64) __builtin_prefetch(next + at);
}

/// Two groups, `gap` bytes apart, and `rows` rows of activations over all blocks.
template <CodeBits bits, Shift shift, int rows>
HWY_INLINE void WideTile(const ActivationRows& x, Index row, const std::byte* group, Index gap,
                         __m512 (&out)[rows]) {
  const std::int8_t* codes = x.codes + row * quantized_block;
  const ActivationBlock* about = x.blocks + row;
  const std::byte* next = group + 2 * gap;
  constexpr Index two_blocks = 2 * group_block_bytes<bits, shift>;
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) out[r] = _mm512_setzero_ps();
  for (Index b = 0; b < x.blocks_per_row; ++b) {
    if (row == 0) PrefetchPart(next + b * two_blocks, two_blocks);
    __m512i sums[rows];
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r)
      sums[r] = MinusZeros<code_zero<bits, shift, Int8Products::vnni>>(about[r].codes_sum);
    AddBlockWide<bits, rows>(group + (shift == Shift::own ? 32 : 16), gap, codes, sums);
    const __m512 scale = LoadBothHalves(group, gap);
    const __m512 offset =
        shift == Shift::own ? LoadBothHalves(group + 16, gap) : _mm512_setzero_ps();
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const ActivationBlock& block = about[r];
      const __m512 factor = _mm512_mul_ps(scale, _mm512_set1_ps(block.scale));
      out[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r]), factor, out[r]);
      if constexpr (shift == Shift::own)
        out[r] = _mm512_fmadd_ps(offset, _mm512_set1_ps(block.total), out[r]);
    }
    group += group_block_bytes<bits, shift>;
    codes += x.step * quantized_block;
    about += x.step;
  }
}

template <CodeBits bits, Shift shift, int rows>
HWY_INLINE void StoreWideTile(const ActivationRows& x, Index row, const std::byte* group, Index gap,
                              const QuantizedResult& to, Index column) {
  __m512 out[rows];
  WideTile<bits, shift, rows>(x, row, group, gap, out);
  const Index columns = std::min(2 * quantized_rows, to.columns - column);
  const auto there = static_cast<__mmask16>((1u << columns) - 1);
  const __m512 bias =
      to.bias == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(there, to.bias + column);
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
    const __m512 sum = to.bias == nullptr ? out[r] : _mm512_add_ps(out[r], bias);
    _mm512_mask_storeu_ps(to.data + (row + r) * to.stride + column, there, sum);
  }
}

/// The last rows of activations, at most `most` and at least two.
template <CodeBits bits, Shift shift, int most>
HWY_INLINE void StoreWideRest(const ActivationRows& x, Index row, const std::byte* group, Index gap,
                              const QuantizedResult& to, Index column) {
  if constexpr (most > 2)
    if (x.rows - row < most)
      return StoreWideRest<bits, shift, most - 1>(x, row, group, gap, to, column);
  StoreWideTile<bits, shift, most>(x, row, group, gap, to, column);
}

/// Two groups at a time for rows in eights and the rest. One row alone is narrow: memory is its
/// limit, and the hardware prefetcher follows one stream.
template <CodeBits bits, Shift shift>
void QuantizedProductVnni(const ActivationRows& x, const std::byte* groups,
                          const QuantizedResult& to) noexcept {
  const Index gap = x.blocks_per_row * group_block_bytes<bits, shift>;
  const Index wide_rows = x.rows % 8 == 1 ? x.rows - 1 : x.rows;
  Index column = 0;
  for (; column + quantized_rows < to.columns; column += 2 * quantized_rows, groups += 2 * gap) {
    Index row = 0;
    for (; row + 8 <= wide_rows; row += 8)
      StoreWideTile<bits, shift, 8>(x, row, groups, gap, to, column);
    if (row < wide_rows) StoreWideRest<bits, shift, 7>(x, row, groups, gap, to, column);
    for (Index half = 0; half < 2; ++half)
      StoreNarrowRows<bits, shift, Int8Products::vnni>(x, wide_rows, groups + half * gap, to,
                                                       column + half * quantized_rows);
  }
  if (column < to.columns)
    StoreNarrowRows<bits, shift, Int8Products::vnni>(x, 0, groups, to, column);
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
#endif
