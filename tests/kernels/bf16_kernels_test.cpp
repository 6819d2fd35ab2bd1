#include "kernels/bf16_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/buffer.h"
#include "support/cases.h"
#include "support/truth/definition.h"

namespace rapt::test {
using namespace detail;
namespace {

/// The kernels of every engine of this machine.
std::vector<const Kernels*> engines() {
  std::vector<const Kernels*> all;
  for (const Kernels* kernels : supported_kernels())
    if (kernels->has_bf16()) all.push_back(kernels);
  return all;
}

Buffer<Bf16> random_halves(Index count, std::uint64_t seed) {
  Buffer<Bf16> numbers(count);
  Random random(seed);
  for (Bf16& x : numbers) x = Bf16(static_cast<float>(random.normal()));
  return numbers;
}

Buffer<float> random_floats(Index count, std::uint64_t seed) {
  Buffer<float> numbers(count);
  Random random(seed);
  for (float& x : numbers) x = static_cast<float>(random.normal());
  return numbers;
}

template <class T>
Buffer<T> filled(Index count, T with) {
  Buffer<T> numbers(count);
  std::fill(numbers.begin(), numbers.end(), with);
  return numbers;
}

/// Index of key c of 64 in a row of rounded probabilities.
Index place(Index c) { return c / 32 * 32 + c % 16 * 2 + c % 32 / 16; }

void expect_near(double got, double want, double size, const char* what, const char* engine) {
  ASSERT_LE(std::fabs(got - want), 32 * u32 * size + 1e-30) << what << " on " << engine;
}

TEST(Bf16Kernels, OperandsArePackedAsTheyAre) {
  for (const Kernels* kernels : engines()) {
    for (const auto& [count, dim] : {std::pair<Index, Index>{64, 64}, {1, 1}, {17, 40}, {63, 33}}) {
      const Index stride = dim + 3, depth = (dim + 31) / 32 * 32, width = (dim + 15) / 16 * 16;
      const Buffer<Bf16> from = random_halves(count * stride, 1);
      const InputRows rows{from.data(), Type::bf16, stride, count};
      Buffer<Bf16> left = filled(64 * depth, Bf16(7.0f)), columns = filled(64 * width, Bf16(7.0f));
      kernels->bf16->tiles.pack_strips(rows, dim, depth, left.data());
      EXPECT_TRUE(kernels->bf16->tiles.pack_columns(rows, dim, width, columns.data()));
      const auto want = [&](Index r, Index c) {
        return r < count && c < dim ? from[r * stride + c] : Bf16();
      };
      for (Index r = 0; r < 64; ++r) {
        for (Index c = 0; c < depth; ++c) ASSERT_EQ(left[r * depth + c], want(r, c));
        for (Index c = 0; c < width; ++c) ASSERT_EQ(columns[c * 64 + r], want(r, c));
      }
    }
  }
}

TEST(Bf16Kernels, ProductsAreThoseOfTheRoundedNumbers) {
  for (const Kernels* kernels : engines()) {
    const TileKernels<Bf16>& tiles = kernels->bf16->tiles;
    const ProductSession<Bf16> session(*kernels);
    for (const Index dim : {1, 16, 32, 40, 64, 80, 128, 512}) {
      const Index depth = (dim + 31) / 32 * 32, width = (dim + 15) / 16 * 16;
      const Buffer<Bf16> a = random_halves(64 * dim, 2), b = random_halves(64 * dim, 3);
      const InputRows a_rows{a.data(), Type::bf16, dim, 64}, b_rows{b.data(), Type::bf16, dim, 64};
      Buffer<Bf16> left(64 * depth), panels(64 * depth), right_rows(64 * width);
      tiles.pack_strips(a_rows, dim, depth, left.data());
      tiles.pack_panels(b_rows, dim, depth / 2, panels.data());
      tiles.pack_rows(b_rows, dim, width, right_rows.data());

      Buffer<float> scores(64 * 64);
      tiles.scores(left.data(), depth, panels.data(), 64, nullptr, scores.data());
      for (Index r = 0; r < 64; ++r) {
        for (Index c = 0; c < 64; ++c) {
          double sum = 0, size = 0;
          for (Index k = 0; k < dim; ++k) {
            const double term = double(float(a[r * dim + k])) * double(float(b[c * dim + k]));
            sum += term, size += std::fabs(term);
          }
          expect_near(scores[r * 64 + c], sum, size, "scores", kernels->bf16->engine);
        }
      }

      const Buffer<float> numbers = random_floats(64 * 64, 4);
      Buffer<Bf16> rounded(64 * 64), interleaved(64 * 64), columns(64 * width);
      tiles.pack_scores(numbers.data(), 64, rounded.data());
      tiles.pack_interleaved(numbers.data(), 64, nullptr, interleaved.data());
      tiles.pack_columns(a_rows, dim, width, columns.data());
      Buffer<float> out = filled(64 * width, 0.5f), transposed = filled(64 * width, 0.25f);
      tiles.accumulate_values(rounded.data(), right_rows.data(), width, 64, nullptr, out.data());
      tiles.accumulate_transposed(columns.data(), interleaved.data(), width, transposed.data());
      for (Index r = 0; r < 64; ++r) {
        for (Index c = 0; c < dim; ++c) {
          double sum = 0.5, size = 0.5, sum_t = 0.25, size_t_ = 0.25;
          for (Index k = 0; k < 64; ++k) {
            const double p = static_cast<float>(rounded[r * 64 + place(k)]);
            const double term = p * double(float(b[k * dim + c]));
            sum += term, size += std::fabs(term);
            const double p_t = static_cast<float>(interleaved[k / 2 * 128 + 2 * r + k % 2]);
            const double term_t = p_t * double(float(a[k * dim + c]));
            sum_t += term_t, size_t_ += std::fabs(term_t);
          }
          expect_near(out[r * width + c], sum, size, "accumulate_values", kernels->bf16->engine);
          expect_near(transposed[c * 64 + r], sum_t, size_t_, "accumulate_transposed",
                      kernels->bf16->engine);
        }
      }
      Buffer<float> rows(64 * width);
      tiles.transpose(transposed.data(), width, rows.data());
      for (Index r = 0; r < 64; ++r)
        for (Index c = 0; c < width; ++c) ASSERT_EQ(rows[r * width + c], transposed[c * 64 + r]);
    }
  }
}

TEST(Bf16Kernels, ClipsLeaveTheRestAlone) {
  for (const Kernels* kernels : engines()) {
    const TileKernels<Bf16>& tiles = kernels->bf16->tiles;
    const ProductSession<Bf16> session(*kernels);
    const Buffer<Bf16> left = random_halves(64 * 32, 5), right = random_halves(64 * 32, 6);
    Clips clips = {};
    clips[1] = {8, 16};                       // rows 0..15: columns 0..31
    clips[5] = clips[6] = {40, 48};           // rows 16..31: columns 32..63
    clips[8] = {0, 8}, clips[11] = {56, 64};  // rows 32..47: all; rows 48..63: none
    Buffer<float> whole(64 * 64), scores = filled(64 * 64, -1e30f);
    tiles.scores(left.data(), 32, right.data(), 64, nullptr, whole.data());
    tiles.scores(left.data(), 32, right.data(), 64, clips, scores.data());
    for (Index r = 0; r < 64; ++r) {
      for (Index c = 0; c < 64; ++c) {
        const bool inside = r < 16 ? c < 32 : r < 32 ? c >= 32 : r < 48;
        ASSERT_EQ(scores[r * 64 + c], inside ? whole[r * 64 + c] : -1e30f) << r << ' ' << c;
      }
    }
  }
}

TEST(Bf16Kernels, NumbersAreRoundedToTheNearest) {
  for (const Kernels* kernels : engines()) {
    const TileKernels<Bf16>& tiles = kernels->bf16->tiles;
    Buffer<float> numbers = random_floats(64 * 64, 7);
    numbers[0] = 0, numbers[1] = std::numeric_limits<float>::infinity();
    numbers[2] = std::numeric_limits<float>::quiet_NaN(), numbers[3] = -1.00390625f;
    const Buffer<float> factors = random_floats(64, 8);
    constexpr Index rows = 61;
    Buffer<Bf16> left(64 * 64), interleaved(64 * 64), scaled(64 * 64);
    tiles.pack_scores(numbers.data(), rows, left.data());
    tiles.pack_interleaved(numbers.data(), rows, nullptr, interleaved.data());
    tiles.pack_interleaved(numbers.data(), rows, factors.data(), scaled.data());
    for (Index r = 0; r < 64; ++r) {
      for (Index c = 0; c < 64; ++c) {
        const auto got = static_cast<float>(left[r * 64 + place(c)]);
        const auto same = static_cast<float>(interleaved[r / 2 * 128 + 2 * c + r % 2]);
        const auto times = static_cast<float>(scaled[r / 2 * 128 + 2 * c + r % 2]);
        const float x = r < rows ? numbers[r * 64 + c] : 0.0f;
        if (std::isnan(x)) {
          ASSERT_TRUE(std::isnan(got) && std::isnan(same));
        } else if (std::isinf(x)) {
          ASSERT_TRUE(got == x && same == x);
        } else {
          ASSERT_LE(std::fabs(double(got) - double(x)), u16 * std::fabs(double(x)));
          ASSERT_EQ(got, same);
          const double want = double(x) * double(factors[r < rows ? r : 0]);
          ASSERT_LE(std::fabs(double(times) - want), (u16 + u32) * std::fabs(want));
        }
      }
    }
  }
}

}  // namespace
}  // namespace rapt::test
