#include "kernels/bf16_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/buffer.h"
#include "support/cases.h"
#include "support/definition.h"

namespace rapt::test {
namespace {

/// The engines of this machine, each with the kernels it comes with.
std::vector<const Kernels*> engines() {
  std::vector<const Kernels*> all;
  for (const Kernels* kernels : supported_kernels())
    if (kernels->pairs != nullptr) all.push_back(kernels);
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

/// Where key c of 64 stands in a row of rounded probabilities.
Index place(Index c) { return c / 32 * 32 + c % 16 * 2 + c % 32 / 16; }

void expect_near(double got, double want, double size, const char* what, const char* engine) {
  ASSERT_LE(std::fabs(got - want), 32 * u32 * size + 1e-30) << what << " on " << engine;
}

TEST(PairKernels, OperandsArePackedAsTheyAre) {
  for (const Kernels* kernels : engines()) {
    for (const auto& [count, dim] : {std::pair<Index, Index>{64, 64}, {1, 1}, {17, 40}, {63, 33}}) {
      const Index stride = dim + 3, depth = (dim + 31) / 32 * 32, width = (dim + 15) / 16 * 16;
      const Buffer<Bf16> from = random_halves(count * stride, 1);
      const InputRows rows{from.data(), Type::bf16, stride, count};
      Buffer<Bf16> left = filled(64 * depth, Bf16(7.0f)), columns = filled(64 * width, Bf16(7.0f));
      kernels->pairs->pack_left(rows, dim, depth, left.data());
      EXPECT_TRUE(kernels->pairs->pack_columns(rows, dim, width, columns.data()));
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

TEST(PairKernels, ProductsAreThoseOfTheRoundedNumbers) {
  for (const Kernels* kernels : engines()) {
    const PairKernels& pairs = *kernels->pairs;
    const PairSession session(&pairs);
    for (const Index dim : {1, 16, 32, 40, 64, 80, 128, 512}) {
      const Index depth = (dim + 31) / 32 * 32, width = (dim + 15) / 16 * 16;
      const Buffer<Bf16> a = random_halves(64 * dim, 2), b = random_halves(64 * dim, 3);
      const InputRows a_rows{a.data(), Type::bf16, dim, 64}, b_rows{b.data(), Type::bf16, dim, 64};
      Buffer<Bf16> left(64 * depth), key_pairs(64 * depth), value_pairs(64 * width);
      pairs.pack_left(a_rows, dim, depth, left.data());
      kernels->pack_key_pairs(b_rows, dim, depth / 2, key_pairs.data());
      kernels->pack_value_pairs(b_rows, dim, width, value_pairs.data());

      Buffer<float> scores(64 * 64);
      pairs.scores(left.data(), depth, key_pairs.data(), 64, nullptr, scores.data());
      for (Index r = 0; r < 64; ++r) {
        for (Index c = 0; c < 64; ++c) {
          double sum = 0, size = 0;
          for (Index k = 0; k < dim; ++k) {
            const double term = double(float(a[r * dim + k])) * double(float(b[c * dim + k]));
            sum += term, size += std::fabs(term);
          }
          expect_near(scores[r * 64 + c], sum, size, "scores", pairs.engine);
        }
      }

      const Buffer<float> numbers = random_floats(64 * 64, 4);
      Buffer<Bf16> rounded(64 * 64), natural(64 * 64), columns(64 * width);
      pairs.pack_numbers(numbers.data(), 64, rounded.data());
      pairs.pack_natural(numbers.data(), 64, nullptr, natural.data());
      pairs.pack_columns(a_rows, dim, width, columns.data());
      Buffer<float> out = filled(64 * width, 0.5f), transposed = filled(64 * width, 0.25f);
      pairs.gather(rounded.data(), value_pairs.data(), width, 64, nullptr, out.data());
      pairs.gather_columns(columns.data(), natural.data(), width, transposed.data());
      for (Index r = 0; r < 64; ++r) {
        for (Index c = 0; c < dim; ++c) {
          double sum = 0.5, size = 0.5, sum_t = 0.25, size_t_ = 0.25;
          for (Index k = 0; k < 64; ++k) {
            const double p = static_cast<float>(rounded[r * 64 + place(k)]);
            const double term = p * double(float(b[k * dim + c]));
            sum += term, size += std::fabs(term);
            const double p_t = static_cast<float>(natural[k / 2 * 128 + 2 * r + k % 2]);
            const double term_t = p_t * double(float(a[k * dim + c]));
            sum_t += term_t, size_t_ += std::fabs(term_t);
          }
          expect_near(out[r * width + c], sum, size, "gather", pairs.engine);
          expect_near(transposed[c * 64 + r], sum_t, size_t_, "gather_columns", pairs.engine);
        }
      }
      Buffer<float> turned(64 * width);
      pairs.transpose(transposed.data(), width, turned.data());
      for (Index r = 0; r < 64; ++r)
        for (Index c = 0; c < width; ++c) ASSERT_EQ(turned[r * width + c], transposed[c * 64 + r]);
    }
  }
}

TEST(PairKernels, ClipsLeaveTheRestAlone) {
  for (const Kernels* kernels : engines()) {
    const PairKernels& pairs = *kernels->pairs;
    const PairSession session(&pairs);
    const Buffer<Bf16> left = random_halves(64 * 32, 5), right = random_halves(64 * 32, 6);
    Clips clips = {};
    clips[1] = {8, 16};                       // rows 0..15: columns 0..31
    clips[5] = clips[6] = {40, 48};           // rows 16..31: columns 32..63
    clips[8] = {0, 8}, clips[11] = {56, 64};  // rows 32..47: all; rows 48..63: none
    Buffer<float> whole(64 * 64), scores = filled(64 * 64, -1e30f);
    pairs.scores(left.data(), 32, right.data(), 64, nullptr, whole.data());
    pairs.scores(left.data(), 32, right.data(), 64, clips, scores.data());
    for (Index r = 0; r < 64; ++r) {
      for (Index c = 0; c < 64; ++c) {
        const bool inside = r < 16 ? c < 32 : r < 32 ? c >= 32 : r < 48;
        ASSERT_EQ(scores[r * 64 + c], inside ? whole[r * 64 + c] : -1e30f) << r << ' ' << c;
      }
    }
  }
}

TEST(PairKernels, NumbersAreRoundedToTheNearest) {
  for (const Kernels* kernels : engines()) {
    const PairKernels& pairs = *kernels->pairs;
    Buffer<float> numbers = random_floats(64 * 64, 7);
    numbers[0] = 0, numbers[1] = std::numeric_limits<float>::infinity();
    numbers[2] = std::numeric_limits<float>::quiet_NaN(), numbers[3] = -1.00390625f;
    const Buffer<float> factors = random_floats(64, 8);
    constexpr Index rows = 61;
    Buffer<Bf16> left(64 * 64), natural(64 * 64), scaled(64 * 64);
    pairs.pack_numbers(numbers.data(), rows, left.data());
    pairs.pack_natural(numbers.data(), rows, nullptr, natural.data());
    pairs.pack_natural(numbers.data(), rows, factors.data(), scaled.data());
    for (Index r = 0; r < 64; ++r) {
      for (Index c = 0; c < 64; ++c) {
        const auto got = static_cast<float>(left[r * 64 + place(c)]);
        const auto same = static_cast<float>(natural[r / 2 * 128 + 2 * c + r % 2]);
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
