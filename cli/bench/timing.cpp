#include "cli/bench/timing.h"

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <string>

namespace rapt::cli {
namespace {

constexpr double shortest_sample_ms = 20;

double time_ms(const std::function<void()>& work, int times) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (int i = 0; i < times; ++i) work();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count() / times;
}

double quantile(std::vector<double> numbers, double part) {
  std::sort(numbers.begin(), numbers.end());
  const double at = part * static_cast<double>(numbers.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, numbers.size() - 1);
  const double weight = at - static_cast<double>(below);
  return (1 - weight) * numbers[below] + weight * numbers[above];
}

std::optional<Index> status_bytes(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key + ":")) return 1024 * std::stoll(line.substr(key.size() + 1));
  return std::nullopt;
}

bool reset_peak_memory() {
  std::ofstream out("/proc/self/clear_refs");
  out << "5";
  out.flush();
  return out.good();
}

}  // namespace

double best_ms(const std::function<void()>& work, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  double best = time_ms(work, 1);
  for (int run = 1; run < 3 || Clock::now() < end; ++run) best = std::min(best, time_ms(work, 1));
  return best;
}

double median(std::vector<double> numbers) { return quantile(std::move(numbers), 0.5); }

double spread(const std::vector<double>& numbers) {
  return (quantile(numbers, 0.75) - quantile(numbers, 0.25)) / median(numbers);
}

Timing time_against_peak(const Contest& contest, int repeats) {
  const double once_ms = time_ms(contest.work, 1);
  const int times =
      std::max(1, static_cast<int>(std::ceil(shortest_sample_ms / std::max(once_ms, 1e-3))));
  std::vector<double> times_ms, peaks, fractions, speedups;
  if (contest.rival) contest.rival();
  double before = contest.peak();
  for (int repeat = 0; repeat < repeats; ++repeat) {
    times_ms.push_back(time_ms(contest.work, times));
    const double after = contest.peak();
    peaks.push_back((before + after) / 2);
    fractions.push_back(contest.flops / times_ms.back() * 1e-6 / peaks.back());
    before = after;
    if (contest.rival) speedups.push_back(time_ms(contest.rival, times) / times_ms.back());
  }
  const double middle = median(times_ms);
  return {.median_ms = middle,
          .best_ms = *std::min_element(times_ms.begin(), times_ms.end()),
          .spread = spread(times_ms),
          .peak_gflops = median(peaks),
          .fraction = median(fractions),
          .speedup = speedups.empty() ? 0 : median(speedups)};
}

std::optional<Index> peak_memory_of(const std::function<void()>& work) {
  malloc_trim(0);  // memory that earlier work left behind must not pay for this one
  const std::optional<Index> before = status_bytes("VmRSS");
  if (!before || !reset_peak_memory()) return std::nullopt;
  work();
  const std::optional<Index> peak = status_bytes("VmHWM");
  if (!peak) return std::nullopt;
  return std::max<Index>(0, *peak - *before);
}

}  // namespace rapt::cli
