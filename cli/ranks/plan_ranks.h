#pragma once

#include <CLI/CLI.hpp>
#include <optional>

#include "cli/case.h"
#include "rapt/distributed/prediction.h"

namespace rapt::cli {

/// What `rapt plan PATTERN --tokens N --ranks R` is given besides.
struct PlanRanksOptions {
  std::optional<Index> ranks = {};  // the plan of one machine without them
  double network_gbits = 10, latency_us = 20;
  std::optional<double> gflops = {};
  std::optional<Index> threads = {};
  bool strict = false;
  Case c;  // pattern, tokens and shapes
};

void add_plan_ranks_options(CLI::App& command, PlanRanksOptions& options);

/// Who has what, what is sent, and how long it takes.
void print_plan_of_ranks(const PlanRanksOptions& options, Index columns, bool json);

}  // namespace rapt::cli
