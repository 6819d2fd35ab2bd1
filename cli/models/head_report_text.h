#pragma once

#include "rapt/models/heads.h"

namespace rapt::cli {

/// The report for a terminal: a map of the heads, a line for each layer, trials and advice.
void print_report(const HeadReport& report);

}  // namespace rapt::cli
