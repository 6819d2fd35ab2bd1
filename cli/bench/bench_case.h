#pragma once

#include <vector>

#include "cli/case.h"

namespace rapt::cli {

struct BenchCase {
  Case c;
  std::vector<Pass> passes;
};

/// What `rapt bench attention` runs when no case is described: the cases rapt is held to.
std::vector<BenchCase> standard_cases();

}  // namespace rapt::cli
