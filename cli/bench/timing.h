#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "rapt/context.h"

namespace rapt::cli {

double median(std::vector<double> numbers);
/// (75th - 25th percentile) / median
double spread(const std::vector<double>& numbers);

/// One way of running something, timed against the peak of the same moments.
struct Timing {
  double median_ms = 0;
  double best_ms = 0;
  double spread = 0;       // (75th - 25th percentile) / median of the times
  double peak_gflops = 0;  // median of the peaks measured between the runs
  double fraction = 0;     // median over the runs of their GFLOP/s / the peak around them
  double speedup = 0;      // median over the runs of the rival's time / theirs; 0 without one
};

/// What is timed, and against what.
struct Contest {
  std::function<void()> work;
  double flops = 0;                  // that `work` does
  std::function<double()> peak;      // measures GFLOP/s, quickly
  std::function<void()> rival = {};  // the same work done another way, run in turn; may be empty
};

/// Runs the work `repeats` times, each between two short measurements of the peak. Work shorter
/// than 20 ms is run several times in a row and the time divided.
Timing time_against_peak(const Contest& contest, int repeats);

/// Seconds that a measurement of a peak between two runs may take.
inline constexpr double peak_seconds = 0.02;

/// Milliseconds of the best of as many runs as fit into some time, and of three at least.
double best_ms(const std::function<void()>& work, double seconds);

/// How far the resident memory of this process rises above its present level while `work` runs, in
/// bytes; nothing if the system does not let us ask.
std::optional<Index> peak_memory_of(const std::function<void()>& work);

}  // namespace rapt::cli
