#include "lab/experiments/pattern_costs.h"

#include <algorithm>
#include <chrono>

#include "base/memory_use.h"
#include "lab/charts/chart.h"
#include "lab/experiments/numbers.h"
#include "rapt/lsh.h"
#include "rapt/peak.h"

namespace rapt::lab {
using namespace detail;
namespace {

constexpr Index heads = 4, head_dim = 64, shortest = 256, longest_sequence = 16384;

struct Kind {
  const char* name;
  Pattern pattern;
  double efficiency;  // of the peak that the cost model assumes
};

Lsh hashed() {
  Lsh how;
  how.rounds = 4;
  return how;
}

std::vector<Kind> kinds() {
  return {{"dense", causal(), 0.75},
          {"window 256", causal() & window(255, 0), 0.6},
          {"LSH, 4 rounds", lsh(hashed()) & causal(), 0.35}};
}

/// Seconds of the fastest of a few calls, and the peak memory of the call beyond its operands.
struct Cost {
  double seconds = 1e30;
  Index bytes = 0;
};

Cost cost_of(const Pattern& pattern, Index length, const Lab& lab) {
  const Tensor q = normals({1, heads, length, head_dim}, lab.seed);
  const Tensor v = normals({1, heads, length, head_dim}, lab.seed + 1);
  Attention how;
  how.pattern = pattern;
  Cost cost;
  double all_seconds = 0;
  for (int call = 0; call < 2 || (call < 30 && all_seconds < 0.1); ++call) {
    forget_memory_peak();
    const Index before = memory_in_use();
    const auto start = std::chrono::steady_clock::now();
    const Attended attended = attend(q.view(), q.view(), v.view(), how, lab.context);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    cost.seconds = std::min(cost.seconds, taken.count());
    all_seconds += taken.count();
    cost.bytes = std::max(cost.bytes, memory_peak() - before);
  }
  return cost;
}

double pairs_of(const Kind& kind, Index length) {
  return static_cast<double>(lsh_part(kind.pattern) ? lsh_pairs(hashed(), length)
                                                    : Plan(kind.pattern, {length, length}).pairs());
}

struct CostTables {
  Json measured = Json::array(), model = Json::array(), memory = Json::array(),
       crossings = Json::array();
  std::vector<Index> lengths;
  std::vector<std::vector<double>> seconds;  // by kind and length
};

CostTables measure(const Lab& lab, double from) {
  CostTables tables;
  const std::vector<Kind> all = kinds();
  tables.seconds.resize(all.size());
  const double peak = measure_fma_gflops(0.05, lab.context) * 1e9;
  for (Index length = shortest; length <= longest_sequence; length *= 2)
    tables.lengths.push_back(length);
  for (std::size_t i = 0; i < tables.lengths.size(); ++i) {
    const Index length = tables.lengths[i];
    const auto row = [&](const char* pattern, const char* field, double value) {
      return Json{{"pattern", pattern}, {"tokens", length}, {field, value}};
    };
    for (std::size_t kind = 0; kind < all.size(); ++kind) {
      const auto& [name, pattern, efficiency] = all[kind];
      const Cost cost = cost_of(pattern, length, lab);
      const double operations = pairs_of(all[kind], length) * 4 * head_dim * heads;
      tables.seconds[kind].push_back(cost.seconds);
      tables.measured.push_back(row(name, "milliseconds", cost.seconds * 1e3));
      tables.model.push_back(row(name, "milliseconds", operations / (efficiency * peak) * 1e3));
      tables.memory.push_back(row(name, "megabytes", static_cast<double>(cost.bytes) / 1e6));
    }
    tables.memory.push_back(row("all probabilities", "megabytes",
                                static_cast<double>(heads * length * length) * 4 / 1e6));
    lab.progress(from + (1 - from) * static_cast<double>(i + 1) /
                            static_cast<double>(tables.lengths.size()));
  }
  return tables;
}

/// The first length from which on a kind has less to do than dense and is a tenth faster: less is
/// noise.
std::optional<Index> crossing(CostTables& tables, std::size_t kind) {
  const std::vector<double>&dense = tables.seconds[0], &times = tables.seconds[kind];
  std::size_t first = times.size();
  const auto is_faster = [&](std::size_t i) {
    return times[i] < 0.9 * dense[i] &&
           pairs_of(kinds()[kind], tables.lengths[i]) < pairs_of(kinds()[0], tables.lengths[i]);
  };
  while (first > 0 && is_faster(first - 1)) --first;
  if (first == times.size()) return {};
  tables.crossings.push_back({{"pattern", kinds()[kind].name},
                              {"tokens", tables.lengths[first]},
                              {"milliseconds", times[first] * 1e3}});
  return tables.lengths[first];
}

std::string from_text(const std::optional<Index>& tokens) {
  return tokens ? "from " + count_text(*tokens) + " tokens on" : "at no length measured";
}

const Axis length_axis{.field = "tokens", .title = "tokens", .scale = Axis::Scale::log};

Figure time_figure(const CostTables& tables, const PatternCosts& costs, const Lab& lab) {
  const Axis y{
      .field = "milliseconds", .title = "milliseconds, forward", .scale = Axis::Scale::log};
  const LineChart chart{
      .x = length_axis,
      .y = y,
      .layers = {{.table = "measured", .y = y.field, .series = "pattern", .label = "measured"},
                 {.table = "cost model",
                  .mark = Layer::Mark::dashes,
                  .y = y.field,
                  .series = "pattern",
                  .label = "cost model"},
                 {.table = "crossings",
                  .mark = Layer::Mark::points,
                  .y = y.field,
                  .series = "pattern",
                  .label = "faster than dense from here"}}};
  return {
      "time",
      "On this machine a window is faster than dense attention " + from_text(costs.window_from) +
          ", hashing " + from_text(costs.lsh_from),
      "Causal, 4 heads of 64, " + std::to_string(lab.context.threads()) +
          " threads. Dense attention grows with the square of the length, the others in a line: "
          "at " +
          count_text(longest_sequence) + " tokens the window is " + short_text(costs.window_gain) +
          " times and hashing " + short_text(costs.lsh_gain) +
          " times faster. The cost model is pairs × 4d operations at a share of this machine's "
          "measured peak (75 % dense, 60 % window, 35 % hashed).",
      {{"measured", tables.measured},
       {"cost model", tables.model},
       {"crossings", tables.crossings}},
      spec_of(chart)};
}

Figure memory_figure(const CostTables& tables) {
  const LineChart chart{.x = length_axis,
                        .y = {.field = "megabytes",
                              .title = "megabytes beyond the operands",
                              .scale = Axis::Scale::log},
                        .layers = {{.table = "memory", .y = "megabytes", .series = "pattern"}}};
  return {"memory",
          "No pattern needs memory for all pairs, not even the dense one",
          "The peak memory of a call beyond its operands, its result included, against what a "
          "matrix of all probabilities would take. That matrix is what makes long inputs "
          "impossible elsewhere, and it is never made here.",
          {{"memory", tables.memory}},
          spec_of(chart)};
}

}  // namespace

PatternCosts pattern_costs(const Lab& lab, double from) {
  CostTables tables = measure(lab, from);
  PatternCosts costs;
  costs.longest = longest_sequence;
  costs.window_from = crossing(tables, 1);
  costs.lsh_from = crossing(tables, 2);
  costs.window_gain = tables.seconds[0].back() / tables.seconds[1].back();
  costs.lsh_gain = tables.seconds[0].back() / tables.seconds[2].back();
  costs.figures = {time_figure(tables, costs, lab), memory_figure(tables)};
  return costs;
}

}  // namespace rapt::lab
