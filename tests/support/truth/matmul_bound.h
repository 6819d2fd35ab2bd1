#pragma once

#include "rapt/tensor.h"

namespace rapt::test {

/// An element of a product is within multiply_error times the sum of the sizes of its terms (what
/// was there before and the bias are terms) from the exact one. Chains of f32 sums have 16 terms,
/// at most 24 of them make a block, and blocks are 256 deep or more: a term goes through 16 + 23
/// roundings and one for each block. The rest is for terms of second order.
constexpr double multiply_error(Index depth) {
  return (44 + static_cast<double>((depth + 255) / 256)) * 0x1p-24;
}

/// The same of products of bf16, `rounded` of whose operands (0, 1 or 2) had other numbers before.
/// A block of 256 depths is one chain of f32 sums, blocks are added to what was there before; the
/// last of the roundings stands for terms of second order.
constexpr double multiply_bf16_error(Index depth, int rounded) {
  const Index roundings = (depth < 256 ? depth : 256) + (depth + 255) / 256 + 2;
  double growth = 1;
  for (int operand = 0; operand < rounded; ++operand) growth *= 1 + 0x1p-8;
  return growth - 1 + growth * static_cast<double>(roundings) * 0x1p-24;
}

}  // namespace rapt::test
