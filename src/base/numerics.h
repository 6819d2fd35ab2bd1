#pragma once

#include <limits>

#include "rapt/tensor.h"

namespace rapt::detail {

/// Raised by every change after which some result has other bits on the same instruction set.
/// Checkpoints record it.
inline constexpr Index numerics_revision = 2;

inline constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

}  // namespace rapt::detail
