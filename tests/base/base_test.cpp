// What src/base promises: memory, sizes, the floating-point mode.

#include <gtest/gtest.h>

#include <cfenv>
#include <limits>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/flush_denormals.h"
#include "base/indexed_vector.h"
#include "base/sizes.h"
#include "rapt/context.h"

namespace rapt::test {
using namespace detail;
namespace {

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

bool aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 64 == 0; }

TEST(IndexedVector, IsAVectorWhoseSizesAndSubscriptsMayBeSigned) {
  IndexedVector<float> numbers(Index{3}, 2.0F);
  numbers[Index{1}] = 5;
  numbers[std::size_t{2}] = 7;
  EXPECT_EQ(numbers, (std::vector<float>{2, 5, 7}));
  numbers.resize(Index{4});
  numbers.resize(Index{5}, 1.0F);
  EXPECT_EQ(numbers, (std::vector<float>{2, 5, 7, 0, 1}));
  numbers.assign(Index{2}, 4.0F);
  numbers = std::vector<float>{numbers.begin(), numbers.end() - 1};
  EXPECT_EQ(numbers, std::vector<float>{4});
  IndexedVector<bool> bits(Index{2});
  bits[Index{1}] = true;
  EXPECT_TRUE(!bits[0] && bits[1]);
}

TEST(IndexedVector, ElementSubscriptsOtherContainers) {
  std::vector<int> numbers = {1, 2, 3};
  element(numbers, Index{1}) = 5;
  EXPECT_EQ(element(std::span<const int>(numbers), Index{1}), 5);
}

TEST(Sizes, AProductOrSumThatDoesNotFitIsAnError) {
  const Index half = Index{1} << 32;
  EXPECT_EQ(checked_product({3, 5, 7}), 105);
  EXPECT_EQ(message_of([&] {
              checked_product({half, half});
            }),
            "size overflow: a product with factor 4294967296 does not fit 64 bits");
  EXPECT_EQ(checked_sum({3, 5, 7}), 15);
  EXPECT_EQ(message_of([&] {
              checked_sum({std::numeric_limits<Index>::max(), 1});
            }),
            "size overflow: a sum with term 1 does not fit 64 bits");
}

TEST(Buffer, IsAlignedAndMovesItsMemory) {
  Buffer<float> a(3);
  EXPECT_TRUE(aligned(a.data()));
  float* data = a.data();
  Buffer<float> b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(a.size(), 0);
  EXPECT_EQ(Buffer<double>(0).data(), nullptr);
}

TEST(Buffer, RefusesImpossibleSizes) {
  EXPECT_EQ(message_of([] { Buffer<float>(-1); }), "a buffer cannot have -1 elements");
  EXPECT_THROW(Buffer<double>(Index{1} << 61), std::invalid_argument);
}

TEST(Shape, RefusesWhatItCannotHold) {
  EXPECT_EQ(message_of([] {
              Shape({1, 2, 3, 4, 5});
            }),
            "shape: 5 axes given, at most 4 are supported");
  EXPECT_EQ(message_of([] {
              Shape({2, -1}).elements();
            }),
            "shape [2, -1]: axis 1 has a negative size");
  const Index huge = Index{1} << 40;
  EXPECT_EQ(message_of([&] {
              Shape({huge, huge}).elements();
            }),
            "shape [1099511627776, 1099511627776]: the number of elements does not fit 64 bits");
  EXPECT_EQ(Shape({0, huge, huge, huge}).elements(), 0);
  EXPECT_EQ(Shape({0, huge, huge, huge}).row_major()[3], 1);
}

TEST(View, ReachesOnlyNumbersItWasGiven) {
  const std::vector<float> numbers(120);
  EXPECT_EQ(View(numbers, {2, 3, 4, 5}).strides(), (Shape{60, 20, 5, 1}));
  EXPECT_EQ(View(numbers, {2, 60}, {0, 2}).size(1), 60);
  EXPECT_EQ(message_of([&] {
              View(numbers, {2, 3, 4, 6});
            }),
            "view: shape [2, 3, 4, 6] with strides [72, 24, 6, 1] reaches elements 0 to 143 of "
            "only 120 numbers");
  EXPECT_EQ(message_of([&] {
              View(numbers, {2, 3}, {1, -1});
            }),
            "view: shape [2, 3] with strides [1, -1] reaches elements -2 to 1 of only 120 numbers");
  EXPECT_EQ(message_of([&] {
              View(numbers, {2, 3}, {1, 1, 1});
            }),
            "view: shape [2, 3] has 2 axes but strides [1, 1, 1] have 3");
  const Index huge = Index{1} << 62;
  EXPECT_EQ(message_of([&] {
              View(numbers, {1, huge}, {1, 4});
            }),
            "view: shape [1, 4611686018427387904] with strides [1, 4] reaches beyond 64 bits");
  EXPECT_EQ(message_of([&] { View(numbers, {0, huge, 1}, {7, -3, 1}); }), "no error");
}

TEST(View, SwapsAxesWithoutMovingNumbers) {
  const std::vector<float> numbers(24);
  const View heads_first = View(numbers, {1, 4, 2, 3}).swapped(1, 2);
  EXPECT_EQ(heads_first.shape(), (Shape{1, 2, 4, 3}));
  EXPECT_EQ(heads_first.strides(), (Shape{24, 3, 6, 1}));
  EXPECT_EQ(message_of([&] { heads_first.swapped(1, 4); }),
            "view: cannot swap axes 1 and 4 of shape [1, 2, 4, 3]");
}

TEST(Tensor, StartsAsAlignedZerosAndClones) {
  for (const Index rows : {1, 1000, 1000000}) {
    Tensor a({rows, 3});
    EXPECT_TRUE(aligned(a.data()));
    for (const float x : a.numbers()) ASSERT_EQ(x, 0);
    a.numbers().back() = 1;
    const Tensor b = a.clone();
    EXPECT_NE(a.data(), b.data());
    EXPECT_EQ(b.numbers().back(), 1);
  }
}

TEST(FlushDenormals, GivesBackRoundingAndStickyFlags) {
  const volatile float three = 3;
  std::fesetround(FE_UPWARD);
  std::feclearexcept(FE_ALL_EXCEPT);
  std::feraiseexcept(FE_OVERFLOW);
  {
    const FlushDenormals guard;
    EXPECT_EQ(-1 / three, -0x1.555556p-2F);
    std::feraiseexcept(FE_INVALID);
  }
  EXPECT_EQ(-1 / three, -0x1.555554p-2F);
  EXPECT_EQ(std::fetestexcept(FE_INVALID | FE_OVERFLOW), FE_OVERFLOW);
  std::fesetround(FE_TONEAREST);
  std::feclearexcept(FE_ALL_EXCEPT);
}

TEST(Context, ReadsTheEnvironmentAndRefusesNonsense) {
  ASSERT_EQ(setenv("RAPT_THREADS", "3", 1), 0);
  EXPECT_EQ(Context().threads(), 3);
  EXPECT_EQ(Context({}, supported_isas().back()).threads(), 3);
  EXPECT_EQ(Context(2).threads(), 2);
  ASSERT_EQ(setenv("RAPT_THREADS", "3x", 1), 0);
  EXPECT_EQ(message_of([] { Context(); }),
            "RAPT_THREADS is \"3x\", expected a number from 1 to 1024");
  unsetenv("RAPT_THREADS");
  ASSERT_EQ(setenv("RAPT_ISA", supported_isas().back().c_str(), 1), 0);
  EXPECT_EQ(Context().isa(), supported_isas().back());
  ASSERT_EQ(setenv("RAPT_ISA", "MMX", 1), 0);
  EXPECT_NE(message_of([] { Context(); }).find("RAPT_ISA: instruction set \"MMX\""),
            std::string::npos);
  unsetenv("RAPT_ISA");
  EXPECT_EQ(message_of([] { Context(-1); }),
            "context: -1 threads given, expected 1 or more; absent: the default");
  EXPECT_EQ(message_of([] { Context(0); }),
            "context: 0 threads given, expected 1 or more; absent: the default");
}

TEST(Machine, HasCpusAndAVersion) {
  EXPECT_GE(usable_cpus(), 1);
  EXPECT_EQ(version(), RAPT_VERSION);
}

}  // namespace
}  // namespace rapt::test
