#pragma once

#include <optional>

#include "lab/lab.h"

namespace rapt::lab {
using namespace detail;

/// What patterns cost on this machine, and from which length on they are faster than dense.
struct PatternCosts {
  std::vector<Figure> figures;
  std::optional<Index> window_from, lsh_from;  // tokens
  double window_gain = 1, lsh_gain = 1;        // times faster than dense at the longest input
  Index longest = 0;
};

/// Progress runs from `from` to 1.
PatternCosts pattern_costs(const Lab& lab, double from);

}  // namespace rapt::lab
