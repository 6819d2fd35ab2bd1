#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "kernels/kernels.h"
#include "support/engine.h"
#include "support/special_values.h"

namespace rapt::test {
using namespace detail;
namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

/// Rows of any type with a gap between them, and the same as bf16 and zeros beyond.
class Rows {
 public:
  Rows(Index count, Index dim, Type type, float special = 0)
      : count_(count), dim_(dim), stride_(dim + 3) {
    Tensor numbers = random_tensor({count + 1, stride_}, 7);
    for (Index i = 0; i < stride_; ++i) numbers.data()[count * stride_ + i] = nan;  // padding
    if (special != 0) numbers.data()[(count - 1) * stride_ + dim - 1] = special;
    given_ = numbers.converted(type);
    rounded_ = given_.converted(Type::f32).converted(Type::bf16);
  }

  InputRows input() const { return {AnyView(given_).data(), given_.type(), stride_, count_}; }
  std::uint16_t bits(Index slot, Index c) const {
    if (slot >= count_ || c >= dim_) return 0;
    return rounded_.numbers<Bf16>()[at(slot * stride_ + c)].bits;
  }
  float number(Index slot, Index c) const {
    Bf16 x;
    x.bits = bits(slot, c);
    return static_cast<float>(x);
  }

 private:
  Index count_, dim_, stride_;
  Tensor given_, rounded_;
};

/// Packed numbers, full of NaN to begin with, and a guard behind them.
struct Packed {
  explicit Packed(Index count) : numbers(at(count + 1), Bf16(nan)) {}
  std::uint16_t bits(Index i) const { return numbers[at(i)].bits; }
  bool guard_is_whole() const { return numbers.back() == Bf16(nan); }
  std::vector<Bf16> numbers;
};

/// Calls check(kernels, type, rows, dim) for every instruction set and odd sizes.
template <class Check>
void for_each_size(const Check& check) {
  for (const Kernels* kernels : supported_kernels())
    for (const Type type : {Type::f32, Type::bf16, Type::f16})
      for (const Index count : {0, 1, 3, 15, 16, 17, 47, 48, 49, 63, 64})
        for (const Index dim : {1, 2, 7, 8, 9, 33, 64, 80, 127}) {
          SCOPED_TRACE(std::string(kernels->name) + " " + to_string(type) + " " +
                       std::to_string(count) + " rows of " + std::to_string(dim));
          check(*kernels, type, count, dim);
        }
}

TEST(Bf16Pack, KeysAreStoredInPairsOfColumns) {
  for_each_size([](const Kernels& kernels, Type type, Index count, Index dim) {
    const Rows rows(count, dim, type);
    for (const Index half_depth : {(dim + 1) / 2, (dim + 31) / 32 * 16}) {
      Packed packed(half_depth * tile * 2);
      ASSERT_TRUE(
          kernels.pages.pack_bf16_keys(rows.input(), dim, half_depth, packed.numbers.data()));
      for (Index c = 0; c < 2 * half_depth; ++c)
        for (Index slot = 0; slot < tile; ++slot)
          ASSERT_EQ(packed.bits((c / 2 * tile + slot) * 2 + c % 2), rows.bits(slot, c)) << c;
      ASSERT_TRUE(packed.guard_is_whole());
    }
  });
}

TEST(Bf16Pack, ValuesAreStoredInPairsOfSlotsSixteenApart) {
  for_each_size([](const Kernels& kernels, Type type, Index count, Index dim) {
    const Rows rows(count, dim, type);
    for (const Index width : {dim, (dim + 15) / 16 * 16}) {
      Packed packed(tile * width);
      ASSERT_TRUE(kernels.pages.pack_bf16_values(rows.input(), dim, width, packed.numbers.data()));
      for (Index g = 0; g < 2; ++g)
        for (Index i = 0; i < 16; ++i)
          for (Index c = 0; c < width; ++c)
            for (Index half = 0; half < 2; ++half)
              ASSERT_EQ(packed.bits(((g * 16 + i) * width + c) * 2 + half),
                        rows.bits(32 * g + 16 * half + i, c))
                  << c;
      ASSERT_TRUE(packed.guard_is_whole());
    }
  });
}

TEST(Bf16Pack, UnpackedKeysArePanelsAndValuesRows) {
  for_each_size([](const Kernels& kernels, Type type, Index count, Index dim) {
    const Rows rows(count, dim, type);
    const auto exact = [&](Index slot, Index c) { return rows.number(slot, c); };
    const Index stored_width = (dim + 15) / 16 * 16;
    const Index width = (dim + kernels.lanes - 1) / kernels.lanes * kernels.lanes;
    Packed keys((dim + 1) / 2 * tile * 2), values(tile * stored_width);
    kernels.pages.pack_bf16_keys(rows.input(), dim, (dim + 1) / 2, keys.numbers.data());
    kernels.pages.pack_bf16_values(rows.input(), dim, stored_width, values.numbers.data());
    std::vector<float> panels(at(tile * dim)), unpacked(at(tile * width));
    kernels.pages.unpack_bf16_keys(keys.numbers.data(), dim, panels.data());
    kernels.pages.unpack_bf16_values(values.numbers.data(), stored_width, width, unpacked.data());
    for (Index slot = 0; slot < tile; ++slot) {
      const Index panel = slot / kernels.tiles.panel * kernels.tiles.panel;
      const Index columns = std::min(kernels.tiles.panel, tile - panel);
      for (Index c = 0; c < dim; ++c)
        ASSERT_EQ(panels[at(panel * dim + c * columns + slot - panel)], exact(slot, c));
      for (Index c = 0; c < width; ++c) {
        const Index first = c / kernels.tiles.panel * kernels.tiles.panel;
        const Index wide = std::min(kernels.tiles.panel, width - first);
        ASSERT_EQ(unpacked[at(first * tile + slot * wide + c - first)], exact(slot, c));
      }
    }
  });
}

TEST(Bf16Pack, WhatIsNotFiniteIsReportedAndKept) {
  for_each_size([](const Kernels& kernels, Type type, Index count, Index dim) {
    if (count == 0) return;
    for (const float special : {nan, infinity, -infinity, std::numeric_limits<float>::max()}) {
      const Rows rows(count, dim, type, special);
      Packed keys((dim + 1) / 2 * tile * 2), values(tile * dim);
      EXPECT_FALSE(
          kernels.pages.pack_bf16_keys(rows.input(), dim, (dim + 1) / 2, keys.numbers.data()));
      EXPECT_FALSE(kernels.pages.pack_bf16_values(rows.input(), dim, dim, values.numbers.data()));
      const Index slot = count - 1, c = dim - 1;
      EXPECT_EQ(keys.bits((c / 2 * tile + slot) * 2 + c % 2), rows.bits(slot, c));
      const Index row = slot / 32 * 16 + slot % 16;
      EXPECT_EQ(values.bits((row * dim + c) * 2 + slot / 16 % 2), rows.bits(slot, c));
    }
  });
}

}  // namespace
}  // namespace rapt::test
