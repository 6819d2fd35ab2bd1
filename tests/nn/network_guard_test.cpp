#include <gtest/gtest.h>

#include <cmath>

#include "kernels/kernels.h"
#include "kernels/network_kernels.h"
#include "support/memory.h"

namespace rapt::test {
using namespace detail;
namespace {

/// Ones that begin or end at a page whose touch ends the process.
class Line {
 public:
  Line(Index count, Guarded::Side side) : memory_(count, side) {
    for (float& number : memory_.numbers()) number = 1;
  }
  operator float*() const { return memory_.numbers().data(); }
  void expect_finite(const char* what, const Kernels& kernels) const {
    for (const float number : memory_.numbers())
      EXPECT_TRUE(std::isfinite(number)) << what << " on " << kernels.name;
  }

 private:
  Guarded memory_;
};

void run_sums(const Kernels& kernels, Index count, Guarded::Side side) {
  const NetworkKernels& k = *kernels.network;
  const Line a(count, side), b(count, side), y(count, side), parts(3 * count, side);
  k.add(a, b, count);
  EXPECT_EQ(a[count - 1], 2);
  k.sum(a, b, count, y);
  EXPECT_EQ(y[count - 1], 3);
  k.scale(y, 2, count, y);
  EXPECT_EQ(y[count - 1], 6);
  k.affine(y, count, 2, 1);
  EXPECT_EQ(y[count - 1], 13);
  k.add_rows(parts, 3, count, count, y);
  EXPECT_EQ(y[count - 1], 16);
  EXPECT_EQ(k.sum_squares(a, count), 4 * static_cast<double>(count));
  EXPECT_EQ(k.row_sum(a, count), 2 * static_cast<double>(count));
  a[count - 1] = 7;
  EXPECT_EQ(k.largest(a, count), 7);
  EXPECT_EQ(k.exponentials(b, count, 1), static_cast<double>(count));
}

void run_rows(const Kernels& kernels, Index width, Guarded::Side side) {
  const NetworkKernels& k = *kernels.network;
  const Line x(2 * width, side), y(2 * width, side), gain(width, side), shift(width, side),
      dgain(width, side), dshift(width, side), half(width, side);
  RowMoments moments[2];
  for (const NetworkKernels::Norm* norm : {&k.layer_norm, &k.rms_norm}) {
    norm->forward({x, gain, shift, 2, width, 1e-5, moments, y});
    norm->backward({x, gain, 2, width, moments, y, dgain, dshift});
  }
  for (const NetworkKernels::Activate& activate : k.activate) {
    activate.forward(x, 2 * width, y);
    activate.backward(x, 2 * width, y);
    activate.gate(x, 1, width, half);
    activate.gate_backward(x, half, 1, width, y);
  }
  const AdamStep step{0.9, 0.9, 0.99, 0.1, 1, 1e-8, 1};
  k.adam(step, gain, width, half, shift, dshift);
  for (const Line* line : {&x, &y, &gain, &shift, &dgain, &dshift, &half})
    line->expect_finite("a line", kernels);
}

TEST(NetworkGuard, KernelsStayInsideLinesOfAnyLength) {
  for (const Kernels* kernels : supported_kernels())
    for (const Guarded::Side side : {Guarded::Side::begin, Guarded::Side::end})
      for (Index count = 1; count <= 70; ++count) {
        run_sums(*kernels, count, side);
        run_rows(*kernels, count, side);
      }
}

}  // namespace
}  // namespace rapt::test
