#pragma once

#include <cstdint>

#include "rapt/nn/tape.h"

namespace rapt::detail {

/// Independent normal numbers with a standard deviation: a function of (seed, name, place) alone.
void draw_normal(Parameter& parameter, double deviation, std::uint64_t seed);

}  // namespace rapt::detail
