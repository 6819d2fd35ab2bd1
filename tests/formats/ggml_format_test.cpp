// Blocks made by hand, code by code; tests/oracles/pretrained/test_gguf.py compares random ones
// with PyPI's gguf.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "formats/tensors/ggml_format.h"

namespace rapt::test {
using namespace detail;
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes half(float x) {
  const std::uint16_t bits = F16(x).bits;
  return {static_cast<std::uint8_t>(bits & 255), static_cast<std::uint8_t>(bits >> 8)};
}
Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<float> expanded(GgmlType type, const Bytes& block) {
  const GgmlFormat* format = find_ggml_format(static_cast<std::uint32_t>(type));
  EXPECT_EQ(static_cast<Index>(block.size()), format->bytes) << format->name;
  std::vector<float> out(static_cast<std::size_t>(format->numbers));
  format->expand(reinterpret_cast<const std::byte*>(block.data()), out.data());
  return out;
}

TEST(GgufBlocks, FourBits) {
  Bytes codes(16, 0);
  codes[3] = 0x2F;  // number 3 is 15, number 19 is 2
  const std::vector<float> a = expanded(GgmlType::q4_0, half(0.5f) + codes);
  EXPECT_EQ(a[0], -4.f);
  EXPECT_EQ(a[3], 3.5f);
  EXPECT_EQ(a[19], -3.f);
  const std::vector<float> b = expanded(GgmlType::q4_1, half(0.5f) + half(-1.25f) + codes);
  EXPECT_EQ(b[0], -1.25f);
  EXPECT_EQ(b[3], 6.25f);
  EXPECT_EQ(b[19], -0.25f);
}

TEST(GgufBlocks, FiveBits) {
  Bytes codes(16, 0);
  codes[3] = 0x2F;
  const Bytes fifths{8, 0, 8, 0};  // of numbers 3 and 19
  const std::vector<float> a = expanded(GgmlType::q5_0, half(0.5f) + fifths + codes);
  EXPECT_EQ(a[0], -8.f);
  EXPECT_EQ(a[3], 7.5f);
  EXPECT_EQ(a[19], 1.f);
  const std::vector<float> b = expanded(GgmlType::q5_1, half(0.5f) + half(2) + fifths + codes);
  EXPECT_EQ(b[0], 2.f);
  EXPECT_EQ(b[3], 17.5f);
  EXPECT_EQ(b[19], 11.f);
}

TEST(GgufBlocks, EightBits) {
  Bytes codes(32, 0);
  codes[1] = 0x80, codes[31] = 127;
  const std::vector<float> a = expanded(GgmlType::q8_0, half(-0.25f) + codes);
  EXPECT_EQ(a[1], 32.f);
  EXPECT_EQ(a[31], -31.75f);
  Bytes large{0, 0, 0, 0x3F};  // 0.5 as f32
  large.resize(292, 0);
  large[4 + 255] = 0xFF;
  EXPECT_EQ(expanded(GgmlType::q8_k, large)[255], -0.5f);
}

TEST(GgufBlocks, TwoBits) {
  Bytes b(84, 0);
  b[9] = 0x35;                   // numbers 144 to 159: scale 5, low 3
  b[16 + 32 + 17] = 0b00100100;  // numbers 145, 177, 209, 241 have codes 0, 1, 2, 0
  const Bytes scales = half(0.5f) + half(2);
  std::copy(scales.begin(), scales.end(), b.begin() + 80);
  b[11] = 0x01;
  const std::vector<float> x = expanded(GgmlType::q2_k, b);
  EXPECT_EQ(x[145], -6.f);
  EXPECT_EQ(x[177], 0.5f);
  EXPECT_EQ(x[209], 0.f);
  EXPECT_EQ(x[0], 0.f);
}

TEST(GgufBlocks, ThreeBits) {
  Bytes b(110, 0);
  b[17] = 1 << 4;             // the third bit of number 128 + 17
  b[32 + 32 + 17] = 0b11;     // its code is 3
  b[96 + 1] = 0x70;           // part 9: lower bits of its scale are 7
  b[96 + 8 + 1] = 0b10 << 4;  // and upper bits 2: 39 - 32 = 7
  const Bytes scale = half(0.5f);
  std::copy(scale.begin(), scale.end(), b.begin() + 108);
  const std::vector<float> x = expanded(GgmlType::q3_k, b);
  EXPECT_EQ(x[145], 10.5f);  // 0.5 * 7 * 3
  EXPECT_EQ(x[146], -14.f);  // 0.5 * 7 * (0 - 4)
  EXPECT_EQ(x[0], 64.f);     // 0.5 * -32 * -4
}

/// Parts 1 and 6: scales 33 and 50, lows 21 and 44.
Bytes parts() {
  Bytes six(12, 0);
  six[1] = 33, six[5] = 21;
  six[2] = 3 << 6, six[6] = 2 << 6, six[10] = 0xC2;
  return half(0.5f) + half(0.25f) + six;
}

TEST(GgufBlocks, FourBitsInLargeBlocks) {
  Bytes codes(128, 0);
  codes[7] = 0x90, codes[96 + 9] = 0x0B;  // number 39 is 9, number 201 is 11
  const std::vector<float> x = expanded(GgmlType::q4_k, parts() + codes);
  EXPECT_EQ(x[39], 0.5f * 33 * 9 - 0.25f * 21);
  EXPECT_EQ(x[201], 25.f * 11 - 11);
  EXPECT_EQ(x[0], 0.f);
}

TEST(GgufBlocks, FiveBitsInLargeBlocks) {
  Bytes codes(128, 0), fifths(32, 0);
  codes[7] = 0x90, codes[96 + 9] = 0x0B, fifths[9] = 1 << 6;
  const std::vector<float> x = expanded(GgmlType::q5_k, parts() + fifths + codes);
  EXPECT_EQ(x[39], 0.5f * 33 * 9 - 0.25f * 21);
  EXPECT_EQ(x[201], 25.f * 27 - 11);
}

TEST(GgufBlocks, SixBits) {
  Bytes b(210, 0);
  b[64 + 3] = 0x5A;              // numbers 131 and 195: lower bits 10 and 5
  b[128 + 32 + 3] = 0b00010011;  // upper bits of 131: 3, of 195: 1
  b[192 + 8] = 0xFE, b[192 + 12] = 3;
  const Bytes scale = half(0.5f);
  std::copy(scale.begin(), scale.end(), b.begin() + 208);
  const std::vector<float> x = expanded(GgmlType::q6_k, b);
  EXPECT_EQ(x[131], 0.5f * -2 * (58 - 32));
  EXPECT_EQ(x[195], 0.5f * 3 * (21 - 32));
  EXPECT_EQ(x[128], 0.5f * -2 * -32);
}

}  // namespace
}  // namespace rapt::test
