#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <iostream>

#include "kernels/kernels.h"
#include "kernels/network_kernels.h"
#include "rapt/nn/functional.h"
#include "support/engine.h"
#include "support/network.h"
#include "support/refused.h"
#include "support/truth/bound.h"

namespace rapt::test {
using namespace detail;
namespace {

constexpr Activation all[] = {Activation::relu, Activation::gelu, Activation::gelu_tanh,
                              Activation::silu};

double normal(double x) { return std::erfc(-x * M_SQRT1_2) / 2; }
double density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * M_PI); }
double logistic(double x) { return 1 / (1 + std::exp(-x)); }
constexpr double steepness = 0.79788456080286535588;  // sqrt(2 / pi)
double bent(double x) { return 2 * steepness * (x + 0.044715 * x * x * x); }

double definition(Activation how, double x) {
  switch (how) {
    case Activation::relu:
      return x > 0 ? x : 0;
    case Activation::gelu:
      return x * normal(x);
    case Activation::gelu_tanh:
      return x * logistic(bent(x));
    case Activation::silu:
      return x * logistic(x);
  }
  return NAN;
}

/// Its slope, and the sizes of the terms that the slope is the sum of.
struct Slope {
  double value, size;
};
Slope slope(Activation how, double x) {
  if (how == Activation::relu) return {x > 0 ? 1.0 : 0.0, 1};
  if (how == Activation::gelu)
    return {normal(x) + x * density(x), normal(x) + std::abs(x) * density(x)};
  const bool silu = how == Activation::silu;
  const double z = silu ? x : bent(x), s = logistic(z), rest = logistic(-z);
  const double steep = silu ? 1 : 2 * steepness * (1 + 3 * 0.044715 * x * x);
  return {s * (1 + x * steep * rest), s * (1 + std::abs(x * steep) * rest)};
}

/// Units of error: a wrong exponent of e costs as much as it is large.
double units(Activation how, double x) {
  if (how == Activation::relu) return 0;
  if (how == Activation::gelu) return 12;
  return 8 + 4 * std::abs(how == Activation::silu ? x : bent(x));
}

/// Every f32 with bits 0, step, 2 step, ... up to an infinity, of both signs.
std::vector<float> floats(std::uint32_t step) {
  std::vector<float> list;
  for (std::uint32_t bits = 0; bits <= 0x7F800000u - step; bits += step)
    for (const std::uint32_t sign : {0u, 0x80000000u})
      list.push_back(std::bit_cast<float>(bits | sign));
  return list;
}

/// Distance in units of the last place of the wanted number, f32's smallest normal at least.
double ulps(float got, double want) {
  const double near = std::max(std::abs(want), 0x1p-126);
  return std::abs(static_cast<double>(got) - want) / std::ldexp(1.0, std::ilogb(near) - 23);
}

void expect_normal(std::uint32_t step) {
  const std::vector<float> x = floats(step);
  std::vector<float> y(x.size());
  for (const Kernels* kernels : supported_kernels()) {
    kernels->network->normal_cdf(x.data(), static_cast<Index>(x.size()), y.data());
    double worst = 0, most = 0;
    float where = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double want = normal(static_cast<double>(x[i]));
      const double off =
          want < 0x1p-126 ? (y[i] <= 0x1.1p-126f && y[i] >= 0 ? 0 : INFINITY) : ulps(y[i], want);
      if (off > worst) worst = off, where = x[i];
      most = std::max(most, std::abs(static_cast<double>(y[i]) - want));
    }
    EXPECT_LE(worst, 5) << "at " << where << " on " << kernels->name;
    EXPECT_LE(most, 1e-7) << kernels->name;
    std::cout << "normal: " << worst << " ulp at most, at " << where << ", " << most << " on "
              << kernels->name << '\n';
  }
}

TEST(Activation, NormalIsWithinItsUlpBound) { expect_normal(1009); }
TEST(SlowActivation, NormalIsWithinItsUlpBoundForDenseFloats) { expect_normal(257); }

TEST(Activation, IsTheDefinitionForAllKindsOfNumbers) {
  const std::vector<float> x = floats(9973);
  const auto count = static_cast<Index>(x.size());
  for (const Kernels* kernels : supported_kernels())
    for (const Activation how : all) {
      const NetworkKernels::Activate& activate = kernels->network->activate[static_cast<int>(how)];
      std::vector<float> y(x.size()), dy(x.size(), 1.0f);
      activate.forward(x.data(), count, y.data());
      activate.backward(x.data(), count, dy.data());
      Index broken = 0;
      float where = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double at = static_cast<double>(x[i]), want = definition(how, at);
        const Slope s = slope(how, std::clamp(at, -100.0, 100.0));
        const double allowed = units(how, std::clamp(at, -100.0, 100.0)) * u32;
        const bool fine =
            std::abs(static_cast<double>(y[i]) - want) <= allowed * std::abs(want) + 0x1p-118 &&
            std::abs(static_cast<double>(dy[i]) - s.value) <= allowed * s.size + 0x1p-118;
        if (!fine && broken++ == 0) where = x[i];
      }
      EXPECT_EQ(broken, 0) << "first at " << where << " of " << static_cast<int>(how) << " on "
                           << kernels->name;
    }
}

TEST(Activation, SlopesAreDifferencesOfTheDefinition) {
  Wide x;
  for (double at = -6; at < 6; at += 0.173) x.push_back(at);
  for (const Activation how : all) {
    const Wide want = differences(
        [&](const Wide& v) {
          double sum = 0;
          for (const double at : v) sum += definition(how, at);
          return sum;
        },
        x);
    for (std::size_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR(slope(how, x[i]).value, want[i], 1e-8) << x[i];
  }
}

// As papers write it; where tanh is near -1 the sum leaves few digits even in double.
TEST(Activation, GeluByTanhIsTheUsualFormula) {
  for (double x = -3; x < 6; x += 0.173)
    EXPECT_NEAR(definition(Activation::gelu_tanh, x), x / 2 * (1 + std::tanh(bent(x) / 2)), 1e-14);
}

TEST(Activation, InfinitiesAndNan) {
  const float inf = INFINITY;
  for (const Kernels* kernels : supported_kernels())
    for (const Activation how : all) {
      const NetworkKernels::Activate& activate = kernels->network->activate[static_cast<int>(how)];
      const float x[] = {inf, std::nanf(""), 1e30f, -1e30f};
      float y[4], dy[] = {1, 1, 1, 1};
      activate.forward(x, 4, y);
      activate.backward(x, 4, dy);
      EXPECT_EQ(y[0], inf);
      EXPECT_TRUE(std::isnan(y[1]));
      EXPECT_EQ(y[2], 1e30f);
      EXPECT_EQ(y[3], 0);
      EXPECT_EQ(dy[0], 1);
      EXPECT_EQ(std::isnan(dy[1]), how != Activation::relu);  // PyTorch's relu passes it on as well
      EXPECT_EQ(dy[2], 1);
      EXPECT_EQ(dy[3], 0);
    }
}

TEST(Activation, OnATapeWithGradients) {
  for (const Activation how : all)
    for (const Shape& shape : {Shape{3, 37}, Shape{1, 1}, Shape{2, 3, 8}})
      in_every_context([&](const Context& context) {
        const Tensor x = random_tensor(shape, 1), dy = random_tensor(shape, 2);
        Tape tape(Tape::Mode::train, context);
        const Variable in = tape.input(x.clone(), true), out = activate(tape, in, how);
        Wide want, dwant, size, dsize;
        for (std::size_t i = 0; i < x.numbers().size(); ++i) {
          const double at = static_cast<double>(x.numbers()[i]);
          const double g = static_cast<double>(dy.numbers()[i]);
          want.push_back(definition(how, at)), size.push_back(std::abs(want.back()));
          dwant.push_back(g * slope(how, at).value);
          dsize.push_back(std::abs(g) * slope(how, at).size);
        }
        EXPECT_SILENT(beyond(context.isa(), out.value().numbers(), want, size, 32));
        tape.backward(out, dy.clone());
        EXPECT_SILENT(beyond("d " + context.isa(), in.gradient().numbers(), dwant, dsize, 32));
      });
}

TEST(Gate, IsTheDefinitionWithItsGradient) {
  for (const Activation how : all)
    for (const Index width : {1, 7, 40})
      in_every_context([&](const Context& context) {
        const Tensor x = random_tensor({3, 2 * width}, 1), dy = random_tensor({3, width}, 2);
        Tape tape(Tape::Mode::train, context);
        const Variable in = tape.input(x.clone(), true), out = gate(tape, in, how);
        Wide want, size, dwant(static_cast<std::size_t>(x.elements())), dsize = dwant;
        for (Index i = 0; i < 3 * width; ++i) {
          const Index left = i / width * 2 * width + i % width, right = left + width;
          const double a = static_cast<double>(x.data()[left]);
          const double b = static_cast<double>(x.data()[right]);
          const double g = static_cast<double>(dy.data()[i]);
          want.push_back(definition(how, a) * b), size.push_back(std::abs(want.back()));
          dwant[static_cast<std::size_t>(left)] = g * b * slope(how, a).value;
          dsize[static_cast<std::size_t>(left)] = std::abs(g * b) * slope(how, a).size;
          dwant[static_cast<std::size_t>(right)] = g * definition(how, a);
          dsize[static_cast<std::size_t>(right)] = std::abs(g * definition(how, a));
        }
        EXPECT_SILENT(beyond(context.isa(), out.value().numbers(), want, size, 32));
        tape.backward(out, dy.clone());
        EXPECT_SILENT(beyond("d " + context.isa(), in.gradient().numbers(), dwant, dsize, 32));
      });
}

TEST(Activation, SameBitsForAnyNumberOfThreads) {
  EXPECT_SILENT(depends_on_threads([&](const Context& context) {
    const Tensor x = random_tensor({301, 778}, 1);
    Tape tape(Tape::Mode::train, context);
    const Variable in = tape.input(x.clone(), true);
    const Variable out = gate(tape, activate(tape, in, Activation::gelu), Activation::silu);
    std::vector<Tensor> results;
    results.push_back(out.value().clone());
    tape.backward(out, random_tensor({301, 389}, 2));
    results.push_back(in.gradient().clone());
    return results;
  }));
}

TEST(Activation, NoRowsAndRefusals) {
  Tape tape;
  const Variable none = tape.input(Tensor({0, 6}), true);
  EXPECT_EQ(gate(tape, activate(tape, none, Activation::silu), Activation::relu).shape(),
            (Shape{0, 3}));
  expect_refused(
      [&] {
        gate(tape, tape.input(Tensor({2, 5})), Activation::silu);
      },
      {"gate", "[2, 5]", "even"});
  expect_refused([&] { activate(tape, none, static_cast<Activation>(9)); },
                 {"activate", "number 9", "0 to 3"});
  expect_refused([&] { activate(tape, Variable(), Activation::relu); }, {"activate", "no numbers"});
}

}  // namespace
}  // namespace rapt::test
