#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <iostream>
#include <limits>
#include <vector>

#include "kernels/kernels.h"

namespace rapt::test {
using namespace detail;
namespace {

/// Distance of two f32 results from the exact one in units of the last place of the exact one.
double ulps(float got, double want) {
  const float near = static_cast<float>(want);
  if (got == near) return 0.5;  // at most: nearly all numbers, and the rest is slow
  const double step = std::max(std::ldexp(1.0, std::ilogb(near) - 23), 0x1p-149);
  return std::fabs(static_cast<double>(got) - want) / step;
}

/// Calls check(x, f(x)) for f32 bit patterns first, first + step, ... on every instruction set.
template <class Function, class Check>
void for_each_float(Function VectorKernels::*function, std::uint64_t step, const Check& check) {
  constexpr Index block = 1 << 14;
  std::vector<float> x(block), y(block);
  for (const Kernels* kernels : supported_kernels()) {
    Index filled = 0;
    const auto flush = [&] {
      (kernels->vectors.*function)(x.data(), filled, y.data());
      for (Index i = 0; i < filled; ++i) check(*kernels, x[i], y[i]);
      filled = 0;
    };
    for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += step) {
      x[filled++] = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
      if (filled == block) flush();
    }
    flush();
  }
}

/// Largest error seen, where, and whether anything that had to be exact was not.
struct Exp2Check {
  double worst = 0;
  float where = 0;
  Index broken = 0;
  float broken_at = 0;

  void operator()(const Kernels&, float x, float y) {
    if (x > 127) return;  // outside the domain: the kernels never ask
    if (!right_kind(x, y)) {
      if (broken++ == 0) broken_at = x;
    } else if (x >= -126) {
      // Below 2^-26 the exact result rounds to 1; asking the library four billion times is slow.
      const bool tiny = std::fabs(x) < 0x1p-26f;
      const double error = ulps(y, tiny ? 1.0 : std::exp2(static_cast<double>(x)));
      if (error > worst) worst = error, where = x;
    }
  }

  static bool right_kind(float x, float y) {
    if (std::isnan(x)) return std::isnan(y);
    if (x == 0) return y == 1;
    if (x < -150) return y == 0;
    if (x < -126) return y >= 0 && y <= 0x1.1p-126f;
    return std::isfinite(y);
  }
};

void expect_exp2(std::uint64_t step) {
  Exp2Check check;
  for_each_float(&VectorKernels::exp2, step,
                 [&](const Kernels& k, float x, float y) { check(k, x, y); });
  EXPECT_EQ(check.broken, 0) << "first at " << check.broken_at;
  EXPECT_LE(check.worst, 1.25) << "at " << check.where;
  std::cout << "exp2: " << check.worst << " ulp at most, at " << check.where << '\n';
}

/// The library's double result where it differs from x or 1 by more than an eighth of an f32 ulp.
double exact_tanh(float x) {
  const double size = std::fabs(static_cast<double>(x));
  if (size < 0x1p-13) return static_cast<double>(x);
  if (size > 11) return std::copysign(1.0, static_cast<double>(x));
  return std::tanh(static_cast<double>(x));
}

void expect_tanh(std::uint64_t step) {
  double worst = 0;
  float where = 0;
  Index broken = 0;
  for_each_float(&VectorKernels::tanh, step, [&](const Kernels&, float x, float y) {
    if (std::isnan(x) || std::isnan(y)) {
      broken += std::isnan(x) != std::isnan(y);
      return;
    }
    if (std::fabs(x) < 0x1p-120f)
      return;  // subnormal products: flushed inside calls, exact outside
    const double error = ulps(y, exact_tanh(x));
    if (error > worst) worst = error, where = x;
  });
  EXPECT_EQ(broken, 0);
  EXPECT_LE(worst, 2.0) << "at " << where;
  std::cout << "tanh: " << worst << " ulp at most, at " << where << '\n';
}

// A prime step visits every exponent and sign with a spread of mantissas.
TEST(Math, Exp2IsWithinItsUlpBound) { expect_exp2(1009); }
TEST(Math, TanhIsWithinItsUlpBound) { expect_tanh(1009); }
TEST(SlowMath, Exp2IsWithinItsUlpBoundForEveryFloat) { expect_exp2(1); }
TEST(SlowMath, TanhIsWithinItsUlpBoundForEveryFloat) { expect_tanh(1); }

}  // namespace
}  // namespace rapt::test
