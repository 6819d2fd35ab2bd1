#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "rapt/tensor.h"

namespace rapt::cli {

/// What all benchmarks of several cases have.
struct BenchOptions {
  std::vector<Index> threads;  // empty: as many as usual
  std::string isa;
  int repeats = 7;
  bool json = false;

  /// One or several numbers for Context.
  std::vector<Index> thread_counts() const {
    return threads.empty() ? std::vector<Index>{0} : threads;
  }
};

/// --threads, --isa, --repeat and --json.
void add_bench_options(CLI::App& command, BenchOptions& options);

}  // namespace rapt::cli
