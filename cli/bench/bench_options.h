#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rapt/tensor.h"

namespace rapt::cli {

/// What all benchmarks of several cases have.
struct BenchOptions {
  std::vector<Index> threads;  // empty: as many as usual
  std::optional<std::string> isa = {};
  int repeats = 7;
  bool json = false;

  /// One or several numbers for Context.
  std::vector<std::optional<Index>> thread_counts() const {
    if (threads.empty()) return {std::nullopt};
    return {threads.begin(), threads.end()};
  }
};

/// --threads, --isa, --repeat and --json.
void add_bench_options(CLI::App& command, BenchOptions& options);

}  // namespace rapt::cli
