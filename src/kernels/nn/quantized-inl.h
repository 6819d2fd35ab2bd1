// Products with weights of 4 and 8 bits: each byte of the weights is read once for four rows of
// activations and never written. A lane is a weight row, so nothing is summed across lanes.
//
// Per block of 32 and eight weight rows: 256 or 128 bytes of codes, 8 products of bytes for each
// row of activations, one conversion to f32 and one multiply-add.
#if defined(RAPT_QUANTIZED_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_QUANTIZED_INL_H
#undef RAPT_QUANTIZED_INL_H
#else
#define RAPT_QUANTIZED_INL_H
#endif

#include <cstring>

#include "base/sizes.h"
#include "kernels/common/convert-inl.h"
#include "kernels/nn/quantized_lanes-inl.h"
#include "kernels/quantized_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {

enum class CodeBits { four, eight };
enum class Shift { none, own };
/// How bytes are multiplied: two at a time, or four by AVX512-VNNI. The sums are the same.
enum class Int8Products { maddubs, vnni };

/// Bytes of eight rows of one block.
template <CodeBits bits, Shift shift>
inline constexpr Index group_block_bytes = (shift == Shift::own ? 32 : 16) +
                                           (bits == CodeBits::four ? 128 : 256);

#if HWY_TARGET == HWY_AVX3
/// The same as BlockSums below, but that codes of 8 bits are 128 more than they are.
template <CodeBits bits, int rows>
HWY_INLINE void BlockSumsVnni(const std::byte* codes, const std::int8_t* x,
                              IntLanes (&sums)[rows]) {
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) sums[r] = ZeroInts();
  if constexpr (bits == CodeBits::eight) {
#pragma GCC unroll 8
    for (int four = 0; four < 8; ++four) {
      const auto w = LoadRaised(codes + 32 * four);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r)
        sums[r] = AddFourVnni(sums[r], w, x + r * quantized_block + 4 * four);
    }
  } else {
#pragma GCC unroll 4
    for (int four = 0; four < 4; ++four) {
      const NibbleCodes w = LoadNibbles(codes + 32 * four);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        sums[r] = AddFourVnni(sums[r], w.lower, x + r * quantized_block + 4 * four);
        sums[r] = AddFourVnni(sums[r], w.upper, x + r * quantized_block + 4 * four + 16);
      }
    }
  }
}
#endif

/// sums[r] = exact sums of weight codes times activation codes over one block.
template <CodeBits bits, Int8Products products, int rows>
HWY_INLINE void BlockSums(const std::byte* codes, const std::int8_t* x, IntLanes (&sums)[rows]) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (products == Int8Products::vnni) return BlockSumsVnni<bits, rows>(codes, x, sums);
#endif
  if constexpr (bits == CodeBits::eight) {
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) sums[r] = ZeroInts();
#pragma GCC unroll 8
    for (int four = 0; four < 8; ++four) {
      const SignedCodes w = LoadSigned(codes + 32 * four);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r)
        sums[r] = AddFourInt8(sums[r], w, x + r * quantized_block + 4 * four);
    }
  } else {
    // Two products are at most 2 * 15 * 127, so eight times that fits 16 bits.
    ShortLanes shorts[rows];
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) shorts[r] = ZeroShorts();
#pragma GCC unroll 4
    for (int four = 0; four < 4; ++four) {
      const NibbleCodes w = LoadNibbles(codes + 32 * four);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        shorts[r] = AddLower(shorts[r], w, x + r * quantized_block + 4 * four);
        shorts[r] = AddUpper(shorts[r], w, x + r * quantized_block + 4 * four + 16);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) sums[r] = SumAdjacent(shorts[r]);
  }
}

/// What codes are multiplied as, minus their value.
template <CodeBits bits, Shift shift, Int8Products products>
inline constexpr std::int32_t code_zero = bits == CodeBits::eight
                                              ? (products == Int8Products::vnni ? 128 : 0)
                                          : shift == Shift::none ? 8
                                                                 : 0;

/// Eight weight rows and `rows` rows of activations over all blocks.
template <CodeBits bits, Shift shift, Int8Products products, int rows>
HWY_INLINE void GroupTile(const ActivationRows& x, Index row, const std::byte* group,
                          FloatLanes (&out)[rows]) {
  const std::int8_t* codes = x.codes + row * quantized_block;
  const ActivationBlock* about = x.blocks + row;
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) out[r] = ZeroFloats();
  for (Index b = 0; b < x.blocks_per_row; ++b) {
    IntLanes sums[rows];
    BlockSums<bits, products, rows>(group + (shift == Shift::own ? 32 : 16), codes, sums);
    const FloatLanes scale = LoadHalves(group);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const ActivationBlock& block = about[r];
      if constexpr (code_zero<bits, shift, products> != 0)
        sums[r] = Subtract(sums[r], code_zero<bits, shift, products> * block.codes_sum);
      out[r] = AddScaled(out[r], sums[r], scale, block.scale);
      if constexpr (shift == Shift::own)
        out[r] = AddProduct(out[r], LoadHalves(group + 16), block.total);
    }
    group += group_block_bytes<bits, shift>;
    codes += x.step * quantized_block;
    about += x.step;
  }
}

template <CodeBits bits, Shift shift, Int8Products products, int rows>
HWY_INLINE void StoreTile(const ActivationRows& x, Index row, const std::byte* group,
                          const QuantizedResult& to, Index column) {
  FloatLanes out[rows];
  GroupTile<bits, shift, products, rows>(x, row, group, out);
  const Index columns = std::min(quantized_rows, to.columns - column);
  for (int r = 0; r < rows; ++r) {
    float numbers[quantized_rows];
    StoreFloats(out[r], numbers);
    float* y = to.data + (row + r) * to.stride + column;
    for (Index c = 0; c < columns; ++c)
      y[c] = to.bias == nullptr ? numbers[c] : numbers[c] + to.bias[column + c];
  }
}

/// Eight weight rows with the rows of activations from `row` on.
template <CodeBits bits, Shift shift, Int8Products products>
HWY_INLINE void StoreNarrowRows(const ActivationRows& x, Index row, const std::byte* group,
                                const QuantizedResult& to, Index column) {
  for (; row + 4 <= x.rows; row += 4)
    StoreTile<bits, shift, products, 4>(x, row, group, to, column);
  if (row + 2 <= x.rows) {
    StoreTile<bits, shift, products, 2>(x, row, group, to, column);
    row += 2;
  }
  if (row < x.rows) StoreTile<bits, shift, products, 1>(x, row, group, to, column);
}

template <CodeBits bits, Shift shift>
void QuantizedProduct(const ActivationRows& x, const std::byte* groups,
                      const QuantizedResult& to) noexcept {
  const Index group_bytes = x.blocks_per_row * group_block_bytes<bits, shift>;
  for (Index column = 0; column < to.columns; column += quantized_rows, groups += group_bytes)
    StoreNarrowRows<bits, shift, Int8Products::maddubs>(x, 0, groups, to, column);
}

/// One block: x holds 32 numbers.
HWY_INLINE void RoundBlock(const float* x, std::int8_t* codes, ActivationBlock& block) {
  const DF d;
  const hn::RebindToSigned<DF> di;
  VF most = hn::Zero(d), flaw = hn::Zero(d);
  for (Index i = 0; i < quantized_block; i += lane_count) {
    const VF number = hn::LoadU(d, x + i);
    most = hn::Max(most, hn::Abs(number));
    flaw = hn::MulAdd(number, hn::Zero(d), flaw);  // NaN if the number is infinite or NaN
  }
  // The inverse of what is smaller would be infinite.
  const float size = std::max(hn::GetLane(hn::MaxOfLanes(d, most)), 0x1p-100f);
  const VF inverse = hn::Set(d, 127 / size);
  auto sum = hn::Zero(di);
  HWY_ALIGN std::int32_t rounded[quantized_block];
  for (Index i = 0; i < quantized_block; i += lane_count) {
    const auto code = hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), inverse));
    sum = hn::Add(sum, code);
    hn::Store(code, di, rounded + i);
  }
  for (Index i = 0; i < quantized_block; ++i) codes[i] = static_cast<std::int8_t>(rounded[i]);
  block.scale = size / 127 + hn::GetLane(hn::SumOfLanes(d, flaw));
  block.codes_sum = hn::GetLane(hn::SumOfLanes(di, sum));
  block.total = block.scale * static_cast<float>(block.codes_sum);
}

inline void RoundActivations(const float* x, Index count, std::int8_t* codes,
                             ActivationBlock* blocks, Index step) noexcept {
  for (; count >= quantized_block; count -= quantized_block, x += quantized_block) {
    RoundBlock(x, codes, *blocks);
    codes += step * quantized_block;
    blocks += step;
  }
  if (count == 0) return;
  HWY_ALIGN float rest[quantized_block] = {};
  std::memcpy(rest, x, to_size(count) * sizeof(float));
  RoundBlock(rest, codes, *blocks);
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
