#pragma once

#include <functional>

#include "kernels/context.h"
#include "rapt/rope.h"

namespace rapt {

enum class RotaryDirection { forward, backward };

/// Pairs of channels of `in` turned into `out`, which may be the same memory. All is checked.
struct Rotation {
  AnyMutableView out;
  AnyView in;
  Index pairs;
  RopeLayout layout;
  RotaryDirection direction;
};

/// Tokens whose turns are looked up together.
inline constexpr Index rope_block = 64;
/// Finds the turns of `count` tokens of an item, at most rope_block; they stay valid until the same
/// worker asks again.
using TakeTurns =
    std::function<void(Index item, Index first, Index count, Index worker, const float** turns)>;

void rotate(const Rotation& rotation, const TakeTurns& take, const Context& context);

}  // namespace rapt
