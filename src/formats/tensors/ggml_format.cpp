#include "formats/tensors/ggml_format.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace rapt::detail {
namespace {

constexpr int block = 32, large_block = 256;

using Byte = std::uint8_t;

const Byte* bytes_of(const std::byte* at) { return reinterpret_cast<const Byte*>(at); }

float half(const Byte* at) {
  F16 x;
  std::memcpy(&x.bits, at, 2);
  return static_cast<float>(x);
}

void expand_f32(const std::byte* from, float* out) noexcept { std::memcpy(out, from, 4); }
void expand_f16(const std::byte* from, float* out) noexcept { *out = half(bytes_of(from)); }
void expand_bf16(const std::byte* from, float* out) noexcept {
  Bf16 x;
  std::memcpy(&x.bits, from, 2);
  *out = static_cast<float>(x);
}

// Blocks of 32. Number i and number i + 16 share a byte of four-bit codes; the fifth bit of all of
// them is one word.

void expand_q4_0(const std::byte* from, float* out) noexcept {
  const Byte* b = bytes_of(from);
  const float scale = half(b);
  for (int i = 0; i < block / 2; ++i) {
    out[i] = scale * static_cast<float>((b[2 + i] & 15) - 8);
    out[i + 16] = scale * static_cast<float>((b[2 + i] >> 4) - 8);
  }
}

void expand_q4_1(const std::byte* from, float* out) noexcept {
  const Byte* b = bytes_of(from);
  const float scale = half(b), low = half(b + 2);
  for (int i = 0; i < block / 2; ++i) {
    out[i] = scale * static_cast<float>(b[4 + i] & 15) + low;
    out[i + 16] = scale * static_cast<float>(b[4 + i] >> 4) + low;
  }
}

int five_bits(const Byte* codes, std::uint32_t fifth, int i) {
  const int low = i < 16 ? codes[i] & 15 : codes[i - 16] >> 4;
  return low | static_cast<int>(fifth >> i & 1) << 4;
}

void expand_q5_0(const std::byte* from, float* out) noexcept {
  const Byte* b = bytes_of(from);
  const float scale = half(b);
  std::uint32_t fifth;
  std::memcpy(&fifth, b + 2, 4);
  for (int i = 0; i < block; ++i)
    out[i] = scale * static_cast<float>(five_bits(b + 6, fifth, i) - 16);
}

void expand_q5_1(const std::byte* from, float* out) noexcept {
  const Byte* b = bytes_of(from);
  const float scale = half(b), low = half(b + 2);
  std::uint32_t fifth;
  std::memcpy(&fifth, b + 4, 4);
  for (int i = 0; i < block; ++i)
    out[i] = scale * static_cast<float>(five_bits(b + 8, fifth, i)) + low;
}

void expand_q8_0(const std::byte* from, float* out) noexcept {
  const Byte* b = bytes_of(from);
  const float scale = half(b);
  for (int i = 0; i < block; ++i)
    out[i] = static_cast<float>(static_cast<std::int8_t>(b[2 + i])) * scale;
}

// Blocks of 256, in parts of 16 or 32 with scales of their own.

/// [16 of scale and low: 4 bits each][64 of codes: 2 bits each][scale][low]
void expand_q2_k(const std::byte* from, float* out) noexcept {
  const Byte* b = bytes_of(from);
  const float scale = half(b + 80), low = half(b + 82);
  for (int i = 0; i < large_block; ++i) {
    const int part = b[i / 16];
    const int code = b[16 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
    out[i] = scale * static_cast<float>(part & 15) * static_cast<float>(code) -
             low * static_cast<float>(part >> 4);
  }
}

/// [32 of third bits][64 of codes: 2 bits each][12 of scales: 6 bits each][scale]. A third bit that
/// is not set takes 4 away.
void expand_q3_k(const std::byte* from, float* out) noexcept {
  const Byte* b = bytes_of(from);
  const Byte* scales = b + 96;
  const float scale = half(b + 108);
  for (int i = 0; i < large_block; ++i) {
    const int part = i / 16;
    const int low = scales[part % 8] >> (part / 8 * 4) & 15;
    const int high = scales[8 + part % 4] >> (part / 4 * 2) & 3;
    const int code = b[32 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
    const int third = b[i % 32] >> (i / 32) & 1;
    out[i] = scale * static_cast<float>((low | high << 4) - 32) *
             static_cast<float>(code - (third == 0 ? 4 : 0));
  }
}

/// [scale][low][12 of parts][128 of codes: 4 bits each]
void expand_q4_k(const std::byte* from, float* out) noexcept {
  const GgmlParts parts = ggml_parts(from);
  const Byte* codes = bytes_of(from) + 16;
  for (int i = 0; i < large_block; ++i) {
    const int code = codes[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
    out[i] = parts.scale[i / 32] * static_cast<float>(code) - parts.low[i / 32];
  }
}

/// [scale][low][12 of parts][32 of fifth bits][128 of codes: 4 bits each]
void expand_q5_k(const std::byte* from, float* out) noexcept {
  const GgmlParts parts = ggml_parts(from);
  const Byte* fifths = bytes_of(from) + 16;
  const Byte* codes = fifths + 32;
  for (int i = 0; i < large_block; ++i) {
    const int code = (codes[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15) |
                     (fifths[i % 32] >> (i / 32) & 1) << 4;
    out[i] = parts.scale[i / 32] * static_cast<float>(code) - parts.low[i / 32];
  }
}

/// [128 of codes: lower 4 bits][64 of codes: upper 2 bits][16 scales][scale]
void expand_q6_k(const std::byte* from, float* out) noexcept {
  const Byte* b = bytes_of(from);
  const float scale = half(b + 208);
  for (int i = 0; i < large_block; ++i) {
    const int half_block = i / 128, within = i % 128;
    const int low = b[half_block * 64 + within % 64] >> (within / 64 * 4) & 15;
    const int high = b[128 + half_block * 32 + within % 32] >> (within / 32 * 2) & 3;
    const auto part = static_cast<std::int8_t>(b[192 + i / 16]);
    out[i] = scale * static_cast<float>(part) * static_cast<float>((low | high << 4) - 32);
  }
}

/// [scale, f32][256 codes][16 sums of codes, which we do not need]
void expand_q8_k(const std::byte* from, float* out) noexcept {
  const Byte* b = bytes_of(from);
  float scale;
  std::memcpy(&scale, b, 4);
  for (int i = 0; i < large_block; ++i)
    out[i] = scale * static_cast<float>(static_cast<std::int8_t>(b[4 + i]));
}

constexpr GgmlType only_named(std::uint32_t type) { return static_cast<GgmlType>(type); }

constexpr GgmlFormat formats[] = {
    {GgmlType::f32, "F32", 1, 4, expand_f32},
    {GgmlType::f16, "F16", 1, 2, expand_f16},
    {GgmlType::q4_0, "Q4_0", block, 18, expand_q4_0},
    {GgmlType::q4_1, "Q4_1", block, 20, expand_q4_1},
    {GgmlType::q5_0, "Q5_0", block, 22, expand_q5_0},
    {GgmlType::q5_1, "Q5_1", block, 24, expand_q5_1},
    {GgmlType::q8_0, "Q8_0", block, 34, expand_q8_0},
    {only_named(9), "Q8_1", block, 40, nullptr},
    {GgmlType::q2_k, "Q2_K", large_block, 84, expand_q2_k},
    {GgmlType::q3_k, "Q3_K", large_block, 110, expand_q3_k},
    {GgmlType::q4_k, "Q4_K", large_block, 144, expand_q4_k},
    {GgmlType::q5_k, "Q5_K", large_block, 176, expand_q5_k},
    {GgmlType::q6_k, "Q6_K", large_block, 210, expand_q6_k},
    {GgmlType::q8_k, "Q8_K", large_block, 292, expand_q8_k},
    {only_named(16), "IQ2_XXS", large_block, 66, nullptr},
    {only_named(17), "IQ2_XS", large_block, 74, nullptr},
    {only_named(18), "IQ3_XXS", large_block, 98, nullptr},
    {only_named(19), "IQ1_S", large_block, 50, nullptr},
    {only_named(20), "IQ4_NL", block, 18, nullptr},
    {only_named(21), "IQ3_S", large_block, 110, nullptr},
    {only_named(22), "IQ2_S", large_block, 82, nullptr},
    {only_named(23), "IQ4_XS", large_block, 136, nullptr},
    {only_named(24), "I8", 1, 1, nullptr},
    {only_named(25), "I16", 1, 2, nullptr},
    {only_named(26), "I32", 1, 4, nullptr},
    {only_named(27), "I64", 1, 8, nullptr},
    {only_named(28), "F64", 1, 8, nullptr},
    {only_named(29), "IQ1_M", large_block, 56, nullptr},
    {GgmlType::bf16, "BF16", 1, 2, expand_bf16},
    {only_named(34), "TQ1_0", large_block, 54, nullptr},
    {only_named(35), "TQ2_0", large_block, 66, nullptr},
    {only_named(39), "MXFP4", block, 17, nullptr},
};

}  // namespace

const GgmlFormat* find_ggml_format(std::uint32_t type) {
  const GgmlFormat* at =
      std::find_if(std::begin(formats), std::end(formats),
                   [&](const GgmlFormat& f) { return static_cast<std::uint32_t>(f.type) == type; });
  return at == std::end(formats) ? nullptr : at;
}

/// Scales and lows have six bits: of the first four, all in one byte each; of the last four, the
/// lower bits share bytes 8 to 11 and the upper two are on top of those of the first four.
GgmlParts ggml_parts(const std::byte* from) {
  const Byte* b = bytes_of(from);
  const float scale = half(b), low = half(b + 2);
  const Byte* six = b + 4;
  GgmlParts parts;
  for (int i = 0; i < 8; ++i) {
    const int s = i < 4 ? six[i] & 63 : (six[i + 4] & 15) | (six[i - 4] >> 6) << 4;
    const int m = i < 4 ? six[i + 4] & 63 : six[i + 4] >> 4 | (six[i] >> 6) << 4;
    parts.scale[i] = scale * static_cast<float>(s);
    parts.low[i] = low * static_cast<float>(m);
  }
  return parts;
}

}  // namespace rapt::detail
