#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rapt/rope.h"
#include "support/truth/definition.h"

// Rotary positions straight from the formula, one pair at a time, in long double.
namespace rapt::test {

/// base^(-2i / channels), i < channels / 2.
std::vector<long double> true_frequencies(double base, Index channels);

/// What a rope does to a row.
struct TrueRope {
  std::vector<long double> frequency;  // of each pair
  RopeLayout layout = RopeLayout::half_split;
  long double factor = 1;
  std::vector<Index> axis = {};  // empty: all follow axis 0
  std::function<long double(Index pair, Index position)> size = nullptr;  // xPos; null: 1

  /// `positions` has one number for each axis.
  Doubles turned(const Doubles& row, const std::vector<Index>& positions) const;
};

/// The rows of [batch, heads, tokens, dim], each turned by the positions of its item and token.
using PositionsOf = std::function<std::vector<Index>(Index item, Index token)>;
Doubles turned(const TrueRope& rope, View x, const PositionsOf& positions);

/// "" or which element is further than a few f32 roundings of its pair from the truth.
std::string far_from(const Doubles& want, View got, const std::string& where, double units = 2);

/// Numbers of any type as f32.
Tensor as_f32(AnyView view);

}  // namespace rapt::test
