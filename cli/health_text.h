#pragma once

#include "rapt/health.h"

namespace rapt::cli {

/// The report for a terminal: a map of the heads, a line for each layer, trials and advice.
void print_health(const ModelHealth& health);

}  // namespace rapt::cli
