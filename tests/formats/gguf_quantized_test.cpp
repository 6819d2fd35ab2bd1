#include "formats/tensors/gguf_quantized.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "nn/matmul/quantized_matrix.h"
#include "support/cases.h"
#include "support/engine.h"
#include "support/gguf_bytes.h"
#include "support/temporary_folder.h"
#include "support/truth/bound.h"

namespace rapt::test {
using namespace detail;
namespace {

/// A file with a matrix of each format under its name, [rows, columns], random bytes but scales
/// that are finite and not extreme.
void put_matrices(const std::string& path, const std::vector<std::uint32_t>& types, Index rows,
                  Index columns) {
  GgufBytes b;
  b.begin(types.size(), 0);
  Random random(3);
  std::uint64_t offset = 0;
  std::string data;
  for (const std::uint32_t type : types) {
    const GgmlFormat& format = *find_ggml_format(type);
    b.tensor(format.name, {static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(rows)},
             type, offset);
    const Index blocks = rows * columns / format.numbers;
    for (Index i = 0; i < blocks; ++i) {
      std::string block;
      for (Index k = 0; k < format.bytes; ++k) block += static_cast<char>(random.below(256));
      const std::uint16_t scale = F16(static_cast<float>(random.normal()) * 0.01f).bits;
      const Index places[] = {0, 2, format.bytes - 4, format.bytes - 2};
      for (const Index place : places)
        if (place >= 0 && format.bytes > 4) std::memcpy(block.data() + place, &scale, sizeof scale);
      if (format.bytes <= 4) {
        const auto x = static_cast<float>(random.normal());
        const std::uint16_t narrow = type == 1 ? F16(x).bits : Bf16(x).bits;
        std::memcpy(block.data(), type == 0 ? static_cast<const void*>(&x) : &narrow, block.size());
      }
      data += block;
    }
    data.resize((data.size() + 31) / 32 * 32);
    offset = data.size();
  }
  put(path, b.pad().raw(data).bytes());
}

class GgufQuantized : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string path_ = folder_ / "a.gguf";
};

TEST_F(GgufQuantized, CodesOfSmallBlocksAreKept) {
  put_matrices(path_, {2, 3, 6, 7, 8}, 21, 96);
  const GgufFile file(path_);
  const std::pair<std::string, Quantization> cases[] = {{"Q4_0", Quantization::q4_0},
                                                        {"Q4_1", Quantization::q4_1},
                                                        {"Q5_0", Quantization::q8_0},
                                                        {"Q5_1", Quantization::q8_1},
                                                        {"Q8_0", Quantization::q8_0}};
  for (const auto& [name, type] : cases) {
    const std::string names[] = {name};
    const QuantizedMatrix w = read_quantized(file, names, Context(2));
    EXPECT_EQ(w.type(), type) << name;
    const Tensor want = file.read(name), got = w.dequantize();
    ASSERT_EQ(got.shape(), want.shape());
    for (Index i = 0; i < want.elements(); ++i) ASSERT_EQ(got.data()[i], want.data()[i]) << name;
  }
}

TEST_F(GgufQuantized, MatricesOfSeveralTypesShareOneThatHoldsThemAll) {
  put_matrices(path_, {2, 3, 8, 7}, 11, 64);
  const GgufFile file(path_);
  const std::string names[] = {"Q8_0", "Q4_0", "Q5_1", "Q4_1"};
  const QuantizedMatrix w = read_quantized(file, names, Context(2));
  EXPECT_EQ(w.type(), Quantization::q8_1);
  EXPECT_EQ(w.shape(), (Shape{44, 64}));
  const Tensor got = w.dequantize();
  for (Index part = 0; part < 4; ++part) {
    const Tensor want = file.read(names[part]);
    for (Index i = 0; i < 11 * 64; ++i)
      ASSERT_EQ(got.data()[part * 11 * 64 + i], want.data()[i]) << names[part];
  }
}

TEST_F(GgufQuantized, LargeBlocksKeepTheirCodesUpToTheRoundingOfScales) {
  put_matrices(path_, {12, 13}, 9, 512);
  const GgufFile file(path_);
  for (const std::string name : {"Q4_K", "Q5_K"}) {
    const std::string names[] = {name};
    const QuantizedMatrix w = read_quantized(file, names);
    EXPECT_EQ(w.type(), name == "Q4_K" ? Quantization::q4_1 : Quantization::q8_1);
    const Tensor want = file.read(name), got = w.dequantize();
    // Scales up to 63 * 0.04 and codes up to 31; lows as large as the scales.
    for (Index i = 0; i < want.elements(); ++i)
      ASSERT_NEAR(got.data()[i], want.data()[i],
                  0x1p-11f * (std::abs(want.data()[i]) + 2 * 63 * 0.05f) + 31 * 0x1p-25f)
          << name;
  }
}

TEST_F(GgufQuantized, OtherTypesAreRoundedAgain) {
  put_matrices(path_, {0, 1, 30, 10, 11, 14}, 9, 256);
  const GgufFile file(path_);
  for (const std::string name : {"F32", "F16", "BF16", "Q2_K", "Q3_K", "Q6_K"}) {
    const std::string names[] = {name};
    const QuantizedMatrix w = read_quantized(file, names);
    EXPECT_EQ(w.type(), Quantization::q8_0);
    const Tensor want = file.read(name), got = w.dequantize();
    for (Index first = 0; first < want.elements(); first += 32) {
      float most = 0;
      for (Index i = 0; i < 32; ++i) most = std::max(most, std::abs(want.data()[first + i]));
      for (Index i = 0; i < 32; ++i)
        ASSERT_NEAR(got.data()[first + i], want.data()[first + i],
                    most / 254 * (1 + 0x1p-4f) + 0x1p-18f)
            << name;
    }
  }
}

/// Rows [first, first + rows) of x times the weight.
std::vector<float> product(const Tensor& x, Index first, Index rows, const QuantizedMatrix& weight,
                           const Context& context) {
  const Index in = x.shape()[1], out = weight.shape()[0];
  std::vector<float> y(static_cast<std::size_t>(rows * out));
  multiply({x.data() + first * in, Type::f32, rows, in, in, 1}, weight,
           {.data = y.data(), .stride = out}, context);
  return y;
}

// A batch changes no row, whatever the file's blocks are.
TEST_F(GgufQuantized, ARowOfAProductHasTheBitsOfItsProductAloneForEveryFormat) {
  std::vector<std::uint32_t> types;
  for (std::uint32_t type = 0; type < 64; ++type)
    if (const GgmlFormat* format = find_ggml_format(type);
        format != nullptr && format->expand != nullptr)
      types.push_back(type);
  ASSERT_GE(types.size(), 13U);
  put_matrices(path_, types, 37, 768);
  const GgufFile file(path_);
  const Tensor x = random_tensor({33, 768}, 4);
  std::vector<Context> all = every_isa();
  all.insert(all.end(), every_bf16_isa().begin(), every_bf16_isa().end());
  for (const Context& context : all)
    for (const std::uint32_t type : types) {
      const std::string names[] = {std::string(find_ggml_format(type)->name)};
      const QuantizedMatrix weight = read_quantized(file, names, context);
      std::vector<float> alone;
      for (Index row = 0; row < 33; ++row) {
        const std::vector<float> one = product(x, row, 1, weight, context);
        alone.insert(alone.end(), one.begin(), one.end());
      }
      for (const Index rows : {2, 3, 4, 7, 16, 33})
        EXPECT_SILENT(different_bits(names[0], product(x, 0, rows, weight, context),
                                     std::span(alone).first(static_cast<std::size_t>(rows * 37))))
            << rows << " rows on " << context.isa();
    }
}

TEST_F(GgufQuantized, WhatDoesNotFitIsRefused) {
  GgufBytes b;
  b.begin(4, 0).tensor("a", {8, 2}, 0, 0).tensor("b", {4, 2}, 0, 64).tensor("v", {8}, 0, 96);
  b.tensor("i", {256, 1}, 16, 128).pad().raw(std::string(128, '\0')).raw(std::string(66, '\0'));
  std::string bytes = b.bytes();
  put(path_, bytes);
  const GgufFile file(path_);
  const auto read = [&](const std::vector<std::string>& names) { read_quantized(file, names); };
  EXPECT_NO_THROW(read({"a", "a"}));
  expect_broken([&] { read({"a", "b"}); }, {path_, "\"b\"", "[2, 4]", "8 columns"});
  expect_broken([&] { read({"v"}); }, {path_, "\"v\"", "[8]", "a matrix"});
  expect_broken([&] { read({"x"}); }, {path_, "no tensor \"x\""});
  expect_broken([&] { read({"i"}); }, {path_, "IQ2_XXS", "unsupported"});
  const float infinite = INFINITY;
  bytes.replace(static_cast<std::size_t>(file.find("a")->offset), 4,
                reinterpret_cast<const char*>(&infinite), 4);
  put(path_, bytes);
  expect_broken([&] { read({"a"}); }, {path_, "\"a\"", "not finite"});
}

TEST_F(GgufQuantized, ScalesThatAreNotFiniteAreRefused) {  // ST-29
  for (const std::uint16_t bits : {0x7C00, 0xFC00, 0x7E00}) {
    put_matrices(path_, {2, 3, 8}, 2, 32);
    std::string bytes = get(path_);
    for (const std::string name : {"Q4_0", "Q4_1", "Q8_0"}) {
      const auto offset = static_cast<std::size_t>(GgufFile(path_).find(name)->offset);
      std::memcpy(bytes.data() + offset, &bits, sizeof bits);
      put(path_, bytes);
      const std::string names[] = {name};
      expect_broken([&] { read_quantized(GgufFile(path_), names); },
                    {path_, name, "row 0 has a scale of", "allow_non_finite"});
    }
  }
}

}  // namespace
}  // namespace rapt::test
