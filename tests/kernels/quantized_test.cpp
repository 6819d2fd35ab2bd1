#include "nn/matmul/quantized_matrix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu_features.h"
#include "kernels/kernels.h"
#include "kernels/network_kernels.h"
#include "kernels/quantized_kernels.h"
#include "rapt/nn/functional.h"
#include "support/cases.h"
#include "support/refused.h"

namespace rapt::test {
using namespace detail;
namespace {

constexpr Quantization types[] = {Quantization::q8_0, Quantization::q8_1, Quantization::q4_0,
                                  Quantization::q4_1};

Tensor random_numbers(const Shape& shape, std::uint64_t seed, double mean = 0) {
  Tensor out(shape);
  Random random(seed);
  for (float& x : out.numbers()) x = static_cast<float>(random.normal() + mean);
  return out;
}

/// Any codes and scales of the type, those at their ends among them.
QuantizedMatrix random_codes(Index rows, Index columns, Quantization type, std::uint64_t seed) {
  auto weights = std::make_shared<QuantizedMatrix::Impl>(rows, columns, type);
  Random random(seed);
  const bool four = type == Quantization::q4_0 || type == Quantization::q4_1;
  for (Index row = 0; row < rows; ++row)
    for (Index block = 0; block < weights->blocks; ++block) {
      QuantizedBlock to{
          .scale = F16(static_cast<float>(random.normal())), .shift = {}, .codes = {}};
      if (has_shift(type)) to.shift = F16(static_cast<float>(random.normal() * 8));
      for (std::int8_t& code : to.codes) {
        const double draw = random.normal();
        const double far = draw > 0.5 ? 1e9 : draw < -1 ? -1e9 : 60 * draw;
        code = static_cast<std::int8_t>(four ? std::clamp(std::round(far / 8 + 8), 0., 15.)
                                             : std::clamp(std::round(far), -128., 127.));
      }
      weights->set(row, block, to);
    }
  return Access::make<QuantizedMatrix>(weights);
}

std::vector<float> product(const Tensor& x, const QuantizedMatrix& w, const Context& context,
                           const float* bias = nullptr) {
  const Index rows = x.shape()[0], in = x.shape()[1], out = w.shape()[0];
  std::vector<float> y(static_cast<std::size_t>(rows * (out + 3)), -7.f);  // 3: a gap to keep
  multiply(Matrix{x.data(), Type::f32, rows, in, in, 1}, w,
           {.data = y.data(), .stride = out + 3, .bias = bias}, context);
  return y;
}

/// The definition in f64, and the error bound of the documentation.
struct Wanted {
  double value, bound;
};
Wanted wanted(const Tensor& x, Index row, const QuantizedMatrix::Impl& w, Index column) {
  double sum = 0, rounding = 0, sizes = 0;
  const bool q4_0 = w.type == Quantization::q4_0;
  for (Index block = 0; block < w.blocks; ++block) {
    const QuantizedBlock b = w.get(column, block);
    const double scale = static_cast<double>(static_cast<float>(b.scale));
    const double shift = static_cast<double>(static_cast<float>(b.shift));
    double most = 0, weights = 0;
    for (Index i = 0; i < std::min<Index>(32, w.columns - 32 * block); ++i) {
      const auto number = static_cast<double>(x.data()[row * w.columns + 32 * block + i]);
      const double weight = scale * (b.codes[i] - (q4_0 ? 8 : 0)) + shift;
      sum += number * weight;
      most = std::max(most, std::abs(number));
      weights += std::abs(weight);
      sizes += std::abs(number) * (std::abs(weight - shift) + std::abs(shift));
    }
    // What is rounded to a code is its number up to the rounding of a division and a product.
    rounding += most / 254 * (1 + 0x1p-20) * weights;
  }
  // Codes may be larger than their numbers by half a unit, too.
  const double terms = static_cast<double>(2 * w.blocks + 6);
  return {sum, rounding + 0x1p-24 * terms * (sizes + rounding * 2) * 1.01};
}

struct QuantizedCase {
  Index rows, in, out;
};
constexpr QuantizedCase cases[] = {{1, 32, 8},   {1, 64, 3},   {2, 96, 17}, {3, 33, 9},   {4, 1, 1},
                                   {5, 576, 40}, {7, 100, 23}, {8, 256, 8}, {70, 160, 31}};

TEST(Quantized, ProductsAreWithinTheBoundOfTheDefinitionOnEveryIsa) {
  for (const Kernels* isa : supported_kernels())
    for (const Quantization type : types)
      for (const auto& [rows, in, out] : cases) {
        const QuantizedMatrix w = random_codes(out, in, type, 7);
        const Tensor x = random_numbers({rows, in}, 8, in % 3 == 0 ? 2 : 0);
        const Tensor bias = random_numbers({out}, 9);
        const std::vector<float> y = product(x, w, Context(2, isa->name), bias.data());
        for (Index row = 0; row < rows; ++row)
          for (Index column = 0; column < out + 3; ++column) {
            const auto got =
                static_cast<double>(y[static_cast<std::size_t>(row * (out + 3) + column)]);
            if (column >= out) {
              EXPECT_EQ(got, -7) << "the gap was written";
              continue;
            }
            const Wanted want = wanted(x, row, impl_of(w), column);
            const double b = static_cast<double>(bias.data()[column]);
            ASSERT_NEAR(got, want.value + b, want.bound + 0x1p-24 * (std::abs(got) + std::abs(b)))
                << to_string(type) << " " << rows << " x " << in << " x " << out << " at " << row
                << ", " << column << " on " << isa->name;
          }
      }
}

TEST(Quantized, BytesMultipliedInPairsAndInFoursGiveTheSameBits) {
  if (!has_avx512_vnni()) GTEST_SKIP() << "this CPU has no AVX512-VNNI";
  for (const Kernels* isa : supported_kernels()) {
    const NetworkKernels& kernels = *isa->network;
    if (kernels.quantized_vnni == nullptr) continue;
    for (const Quantization type : types)
      for (const Index rows : {1, 2, 3, 4, 7, 8, 12, 21})
        for (const Index out : {5, 8, 16, 21, 48}) {
          constexpr Index in = 160, blocks = in / 32;
          const QuantizedMatrix w = random_codes(out, in, type, 5);
          const Tensor x = random_numbers({rows, in}, 6), bias = random_numbers({out}, 7);
          const Index step = rows + 2;
          std::vector<std::int8_t> codes(static_cast<std::size_t>(step * in));
          std::vector<ActivationBlock> about(static_cast<std::size_t>(step * blocks));
          for (Index row = 0; row < rows; ++row)
            kernels.quantized->round(x.data() + row * in, in, codes.data() + row * 32,
                                     about.data() + row, step);
          std::fill_n(codes.begin(), 32, static_cast<std::int8_t>(-127));
          about[0].codes_sum = -127 * 32;
          std::vector<float> maddubs(static_cast<std::size_t>(rows * out)), vnni = maddubs;
          const ActivationRows left{codes.data(), about.data(), rows, blocks, step};
          const std::byte* groups = impl_of(w).memory.data();
          kernels.quantized->product[type](left, groups, {maddubs.data(), out, out, bias.data()});
          kernels.quantized_vnni->product[type](left, groups, {vnni.data(), out, out, bias.data()});
          EXPECT_EQ(std::memcmp(maddubs.data(), vnni.data(), maddubs.size() * sizeof(float)), 0)
              << to_string(type) << ", " << rows << " x " << out << " on " << isa->name;
        }
  }
}

/// With activations that codes hold exactly, nothing but f32 sums is rounded.
TEST(Quantized, WholeNumbersAreExactOnEveryIsa) {
  for (const Kernels* isa : supported_kernels())
    for (const Quantization type : types) {
      auto weights = std::make_shared<QuantizedMatrix::Impl>(19, 64, type);
      Tensor x({6, 64});
      Random random(3);
      for (Index row = 0; row < 19; ++row)
        for (Index block = 0; block < 2; ++block) {
          QuantizedBlock to{.scale = F16(0.5f), .shift = {}, .codes = {}};
          if (has_shift(type)) to.shift = F16(-3);
          for (std::int8_t& code : to.codes)
            code = static_cast<std::int8_t>(random.below(type < Quantization::q4_0 ? 256 : 16) -
                                            (type < Quantization::q4_0 ? 128 : 0));
          weights->set(row, block, to);
        }
      for (Index i = 0; i < 6 * 64; ++i)
        x.data()[i] = i % 32 == 5 ? (i % 3 == 0 ? 127.f : -127.f)
                                  : static_cast<float>(static_cast<int>(random.below(255)) - 127);
      const std::vector<float> y =
          product(x, Access::make<QuantizedMatrix>(weights), Context(1, isa->name));
      for (Index row = 0; row < 6; ++row)
        for (Index column = 0; column < 19; ++column)
          ASSERT_EQ(static_cast<double>(y[static_cast<std::size_t>(row * 22 + column)]),
                    wanted(x, row, *weights, column).value)
              << to_string(type) << " on " << isa->name;
    }
}

TEST(Quantized, SameBitsForAnyThreadsAndAnyRowsBeside) {
  for (const Kernels* isa : supported_kernels())
    for (const Quantization type : types) {
      const QuantizedMatrix w = random_codes(203, 640, type, 11);
      const Tensor x = random_numbers({71, 640}, 12);
      const std::vector<float> once = product(x, w, Context(1, isa->name));
      for (const Index threads : {2, 3, 7})
        EXPECT_EQ(product(x, w, Context(threads, isa->name)), once) << threads << isa->name;
      for (const Index row : {0, 1, 5, 70}) {
        Tensor alone({1, 640});
        std::memcpy(alone.data(), x.data() + row * 640, 640 * sizeof(float));
        const std::vector<float> y = product(alone, w, Context(1, isa->name));
        EXPECT_EQ(std::memcmp(y.data(), once.data() + row * 206, 203 * sizeof(float)), 0)
            << "row " << row << " of " << to_string(type) << " on " << isa->name;
      }
    }
}

TEST(Quantized, NumbersThatAreNotFiniteStayInTheirRow) {
  for (const Kernels* isa : supported_kernels())
    for (const float bad :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      const QuantizedMatrix w = random_codes(9, 70, Quantization::q4_1, 1);
      Tensor x = random_numbers({3, 70}, 2);
      const std::vector<float> good = product(x, w, Context(1, isa->name));
      x.data()[70 + 66] = bad;
      const std::vector<float> y = product(x, w, Context(1, isa->name));
      for (std::size_t i = 0; i < 9; ++i) {
        EXPECT_EQ(y[i], good[i]);
        EXPECT_TRUE(std::isnan(y[12 + i])) << isa->name;
        EXPECT_EQ(y[24 + i], good[24 + i]);
      }
    }
}

TEST(Quantized, SmallAndLargeActivations) {
  for (const Kernels* isa : supported_kernels())
    for (const float factor : {0x1p-120f, 0x1p-90f, 0x1p90f, 0.f}) {
      const QuantizedMatrix w = random_codes(9, 64, Quantization::q8_0, 1);
      Tensor x = random_numbers({1, 64}, 2);
      for (float& number : x.numbers()) number *= factor;
      const std::vector<float> y = product(x, w, Context(1, isa->name));
      for (Index column = 0; column < 9; ++column) {
        const Wanted want = wanted(x, 0, impl_of(w), column);
        // What is below 2^-100 / 254 in size is rounded to 0.
        EXPECT_NEAR(static_cast<double>(y[static_cast<std::size_t>(column)]), want.value,
                    want.bound + 0x1p-100 / 254 * 64 * 128 * 5)
            << factor << " on " << isa->name;
      }
    }
}

TEST(Quantized, BlocksComeBackAsTheyWereSet) {
  for (const Quantization type : types) {
    const QuantizedMatrix w = random_codes(21, 75, type, 5);
    EXPECT_EQ(w.shape(), (Shape{21, 75}));
    EXPECT_EQ(from_string<Quantization>(to_string(type)), type);
    QuantizedMatrix::Impl copy(21, 75, type);
    for (Index row = 20; row >= 0; --row)
      for (Index block = 0; block < 3; ++block) {
        copy.set(row, block, impl_of(random_codes(1, 32, type, 3)).get(0, 0));  // overwritten below
        copy.set(row, block, impl_of(w).get(row, block));
      }
    const Tensor a = w.dequantize(),
                 b = Access::make<QuantizedMatrix>(
                         std::make_shared<QuantizedMatrix::Impl>(std::move(copy)))
                         .dequantize();
    EXPECT_EQ(std::memcmp(a.data(), b.data(), 21 * 75 * sizeof(float)), 0) << to_string(type);
  }
}

TEST(Quantized, RoundingIsWithinHalfAScale) {
  for (const Quantization type : types)
    for (const double mean : {0., 0.5}) {
      const Tensor x = random_numbers({37, 101}, 6, mean);
      const QuantizedMatrix w = QuantizedMatrix::quantize(x, type, Context(2));
      EXPECT_EQ(
          w.bytes(),
          40 / 8 * 4 * (std::vector<Index>{272, 288, 144, 160}[static_cast<std::size_t>(type)]));
      const Tensor y = w.dequantize();
      for (Index i = 0; i < x.elements(); ++i) {
        const QuantizedBlock block = impl_of(w).get(i / 101, i % 101 / 32);
        const double scale = std::abs(static_cast<double>(static_cast<float>(block.scale)));
        const double shift = std::abs(static_cast<double>(static_cast<float>(block.shift)));
        // With q4_0 values beyond code 15 have an error of up to a scale.
        const double half = type == Quantization::q4_0 ? 1 : 0.5;
        ASSERT_NEAR(static_cast<double>(y.data()[i]), static_cast<double>(x.data()[i]),
                    scale * (half + 16 * 0x1p-11) + shift * 0x1p-11)
            << to_string(type);
      }
    }
}

TEST(Quantized, RoundingRefusesWhatItCannotHold) {
  Tensor x({2, 40});
  x.data()[77] = std::numeric_limits<float>::infinity();
  expect_refused([&] { QuantizedMatrix::quantize(x, Quantization::q8_0); }, {"a number is inf"});
  x.data()[77] = 1e30f;
  for (const Quantization type : types)
    expect_refused([&] { QuantizedMatrix::quantize(x, type); }, {"too large"});
  expect_refused([&] { QuantizedMatrix::quantize(Tensor({4}), Quantization::q8_0); }, {"[4]"});
  expect_refused([] { from_string<Quantization>("q3"); }, {"q3", "q4_0"});
}

TEST(Quantized, ParametersWorkInTheOperationsOfANetwork) {
  const Context context(2);
  Parameter table{.name = "table", .value = random_numbers({50, 64}, 1)};
  table.quantize(Quantization::q8_0, context);
  EXPECT_TRUE(table.value.empty());
  EXPECT_EQ(table.shape(), (Shape{50, 64}));
  const Tensor expanded = table.quantized.dequantize();
  Tape tape(Tape::Mode::forward, context);
  const std::vector<std::int32_t> ids{49, 0, 7};
  const Variable x = embed(tape, table, ids);
  for (Index i = 0; i < 3; ++i)
    EXPECT_EQ(std::memcmp(x.value().data() + i * 64,
                          expanded.data() + ids[static_cast<std::size_t>(i)] * 64, 256),
              0);
  Parameter bias{.name = "bias", .value = random_numbers({50}, 2)};
  const Variable y = linear(tape, x, table, &bias);
  const std::vector<float> want = product(x.value(), table.quantized, context, bias.value.data());
  for (Index i = 0; i < 3; ++i)
    EXPECT_EQ(std::memcmp(y.value().data() + i * 50, want.data() + i * 53, 200), 0);

  Parameter plain{.name = "plain", .value = expanded.clone()};
  const std::vector<std::int32_t> targets{3, -1, 49};
  EXPECT_NEAR(cross_entropy(tape, x, table, targets).total,
              cross_entropy(tape, x, plain, targets).total, 0.2);
}

TEST(Quantized, ParametersDoNotLearn) {
  Parameter table{.name = "table", .value = random_numbers({50, 64}, 1)};
  table.quantize(Quantization::q4_0);
  Tape tape(Tape::Mode::train);
  const std::vector<std::int32_t> ids{1};
  const Variable x = tape.input(random_numbers({1, 64}, 3), true);
  expect_refused([&] { embed(tape, table, ids); }, {"embed", "table is quantized"});
  expect_refused([&] { linear(tape, x, table); }, {"linear", "table is quantized"});
  expect_refused([&] { cross_entropy(tape, x, table, ids); }, {"cross_entropy", "is quantized"});
  expect_refused([&] { table.gradient_or_zeros(); }, {"table is quantized"});
  expect_refused([&] { table.quantize(Quantization::q4_0); }, {"quantized already"});
  Parameter gain{.name = "gain", .value = random_numbers({64}, 1)};
  expect_refused([&] { gain.quantize(Quantization::q8_0); }, {"gain", "[64]", "a matrix"});
}

}  // namespace
}  // namespace rapt::test
