#pragma once

#include <functional>

#include "kernels/context.h"
#include "rapt/rope.h"

namespace rapt::detail {

enum class RotaryDirection { forward, backward };

/// Rotates pairs of channels of `in` into `out`, which may be the same memory. All is checked.
struct RopeRotation {
  AnyMutableView out;
  AnyView in;
  Index pairs;
  RopeLayout layout;
  RotaryDirection direction;
};

/// Tokens whose cosines and sines are looked up together.
inline constexpr Index rope_block = 64;
/// Finds the rows of cosines and sines of `count` tokens of an item, at most rope_block; they stay
/// valid until the same worker asks again.
using LoadCosSin =
    std::function<void(Index item, Index first, Index count, Index worker, const float** cos_sin)>;

void rotate(const RopeRotation& rotation, const LoadCosSin& load, const Context& context);

}  // namespace rapt::detail
