#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "base/memory_use.h"
#include "lab/chart.h"
#include "lab/experiment.h"
#include "lab/head_kinds.h"
#include "lab/numbers.h"
#include "rapt/lsh.h"
#include "rapt/machine.h"

namespace rapt::lab {
namespace {

constexpr Index tokens = 4096, dim = 64;

const Axis mass_axis{.field = "mass", .title = "mean probability that is kept", .range = {0, 1}};

Figure window_figure(const std::vector<HeadKind>& kinds, const Lab& lab) {
  Json rows = Json::array();
  for (const HeadKind& kind : kinds)
    for (Index w = 1; w <= tokens; w *= 4)
      for (const bool sink : {false, true}) {
        Pattern near = window(w - 1, 0);
        if (sink) near = near | rapt::tokens({0, 1, 2, 3});
        rows.push_back({{"head", kind.name},
                        {"keys", sink ? "window and first 4 tokens" : "window alone"},
                        {"window", w},
                        {"mass", mass_within(kind, causal(), causal() & near, lab.context)}});
      }
  const LineChart chart{
      .x = {.field = "window", .title = "tokens back that are seen", .scale = Axis::Scale::log},
      .y = mass_axis,
      .layers = {{.table = "rows", .y = "mass", .series = "head"}},
      .facet = "keys"};
  return {
      "window",
      "A window serves a head that looks near by; global tokens serve one that rests on them",
      "Four made-up heads over 4,096 tokens: one whose tokens resemble their neighbours, one that "
      "looks for tokens of its kind anywhere, one that rests on the first four tokens, one that "
      "looks at everything. What a pattern keeps is the quotient of two sums of softmax, exactly. "
      "<code>rapt inspect MODEL --text FILE</code> measures the same of your model.",
      {{"rows", rows}},
      spec_of(chart)};
}

Figure largest_figure(const std::vector<HeadKind>& kinds, const Lab& lab) {
  const std::vector<Index> counts = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
  Json rows = Json::array();
  for (const HeadKind& kind : kinds) {
    const std::vector<double> masses = mass_of_largest(kind, counts, lab.context);
    for (std::size_t i = 0; i < counts.size(); ++i)
      rows.push_back({{"head", kind.name}, {"k", counts[i]}, {"mass", masses[i]}});
  }
  const LineChart chart{
      .x = {.field = "k", .title = "k, the number of keys kept", .scale = Axis::Scale::log},
      .y = mass_axis,
      .layers = {{.table = "rows", .y = "mass", .series = "head"}}};
  return {
      "top-k",
      "How few keys would do, if one knew which",
      "Probability of the k largest keys of a row, mean over late queries: the bound for any "
      "sparse "
      "pattern. A head whose curve rises late is not sparse at all, and no pattern of few keys can "
      "stand in for it.",
      {{"rows", rows}},
      spec_of(chart)};
}

Figure lsh_figure(const std::vector<HeadKind>& kinds, const Lab& lab) {
  Json rows = Json::array();
  double best = 0, diffuse = 0;
  for (const HeadKind& kind : kinds) {
    if (kind.name != "content" && kind.name != "diffuse") continue;
    for (const Index buckets : {16, 64, 256})
      for (const Index rounds : {1, 2, 4, 8}) {
        Lsh how;
        how.rounds = rounds;
        how.buckets = {buckets};
        how.keys = Lsh::Keys::separate;
        how.duplicates = Lsh::Duplicates::once;
        const double mass = mass_within(kind, causal(), lsh(how) & causal(), lab.context);
        rows.push_back({{"head", kind.name + " head"},
                        {"buckets", std::to_string(buckets)},
                        {"rounds", rounds},
                        {"mass", mass}});
        double& most = kind.name == "content" ? best : diffuse;
        most = std::max(most, mass);
      }
  }
  const LineChart chart{
      .x = {.field = "rounds", .title = "rounds of hashing", .scale = Axis::Scale::log},
      .y = mass_axis,
      .layers = {{.table = "rows", .y = "mass", .series = "buckets"}},
      .facet = "head"};
  return {"lsh",
          "Hashing finds the keys that matter when tokens come in kinds, and only then",
          "Chunks of 64 and 2 chunks seen in every round. For tokens in 64 kinds it keeps up to " +
              short_text(100 * best) + " % of the probability; for a head without structure " +
              short_text(100 * diffuse) + " %, hardly more than the keys it visits.",
          {{"rows", rows}},
          spec_of(chart)};
}

/// Seconds of the fastest of a few calls, and the bytes that the call held at most beside operands.
struct Cost {
  double seconds = 1e30;
  Index bytes = 0;
};

Cost cost_of(const Pattern& pattern, Index length, const Lab& lab) {
  constexpr Index heads = 4;
  const Tensor q = normals({1, heads, length, dim}, lab.seed);
  const Tensor v = normals({1, heads, length, dim}, lab.seed + 1);
  Attention how;
  how.pattern = pattern;
  Cost cost;
  const int calls = length <= 4096 ? 5 : 2;
  for (int i = 0; i < calls; ++i) {
    forget_memory_peak();
    const Index before = memory_in_use();
    const auto start = std::chrono::steady_clock::now();
    const Attended attended = attend(q.view(), q.view(), v.view(), how, lab.context);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    cost.seconds = std::min(cost.seconds, taken.count());
    cost.bytes = std::max(cost.bytes, memory_peak() - before);
  }
  return cost;
}

std::vector<Figure> cost_figures(const Lab& lab) {
  constexpr Index heads = 4;
  Lsh hashed;
  hashed.rounds = 4;
  const struct {
    const char* name;
    Pattern pattern;
    double efficiency;  // of the peak that the cost model assumes
  } kinds[] = {{"dense", causal(), 0.75},
               {"window 256", causal() & window(255, 0), 0.6},
               {"lsh, 4 rounds", lsh(hashed) & causal(), 0.35}};
  const double peak = measure_fma_gflops(lab.context) * 1e9;
  Json rows = Json::array(), model = Json::array(), memory = Json::array();
  std::vector<double> dense, window_times, lsh_times;
  std::vector<Index> lengths;
  for (Index length = 256; length <= 16384; length *= 2) lengths.push_back(length);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const Index length = lengths[i];
    for (const auto& kind : kinds) {
      const Cost cost = cost_of(kind.pattern, length, lab);
      rows.push_back(
          {{"pattern", kind.name}, {"tokens", length}, {"milliseconds", cost.seconds * 1e3}});
      const bool is_lsh = lsh_part(kind.pattern).has_value();
      const Index pairs =
          is_lsh ? lsh_pairs(hashed, length) : Plan(kind.pattern, {length, length}).pairs();
      const double flops = static_cast<double>(pairs) * 4 * dim * heads;
      model.push_back({{"pattern", kind.name},
                       {"tokens", length},
                       {"milliseconds", flops / (kind.efficiency * peak) * 1e3}});
      memory.push_back({{"pattern", kind.name},
                        {"tokens", length},
                        {"megabytes", static_cast<double>(cost.bytes) / 1e6}});
      (is_lsh ? lsh_times : kind.efficiency > 0.7 ? dense : window_times).push_back(cost.seconds);
    }
    memory.push_back({{"pattern", "all probabilities"},
                      {"tokens", length},
                      {"megabytes", static_cast<double>(heads * length) *
                                        static_cast<double>(length) * 4 / 1e6}});
    lab.progress(0.4 + 0.6 * static_cast<double>(i + 1) / static_cast<double>(lengths.size()));
  }
  // A tenth faster at this length and all longer ones: less is noise.
  const auto crossing = [&](const std::vector<double>& times) -> std::optional<std::size_t> {
    std::size_t first = times.size();
    while (first > 0 && times[first - 1] < 0.9 * dense[first - 1]) --first;
    if (first == times.size()) return {};
    return first;
  };
  Json marks = Json::array();
  const auto mark = [&](const char* name, const std::vector<double>& times) -> std::string {
    const std::optional<std::size_t> at = crossing(times);
    if (!at) return "at no length measured";
    marks.push_back(
        {{"pattern", name}, {"tokens", lengths[*at]}, {"milliseconds", times[*at] * 1e3}});
    return "from " + std::to_string(lengths[*at]) + " tokens on";
  };
  const std::string window_from = mark("window 256", window_times),
                    lsh_from = mark("lsh, 4 rounds", lsh_times);
  const Axis x{.field = "tokens", .title = "tokens", .scale = Axis::Scale::log};
  const LineChart times{
      .x = x,
      .y = {.field = "milliseconds", .title = "milliseconds, forward", .scale = Axis::Scale::log},
      .layers = {{.table = "rows", .y = "milliseconds", .series = "pattern", .label = "measured"},
                 {.table = "model",
                  .mark = Layer::Mark::dashes,
                  .y = "milliseconds",
                  .series = "pattern",
                  .label = "pairs × 4d / speed"},
                 {.table = "marks",
                  .mark = Layer::Mark::points,
                  .y = "milliseconds",
                  .series = "pattern",
                  .label = "faster than dense from here"}}};
  const LineChart bytes{.x = x,
                        .y = {.field = "megabytes",
                              .title = "megabytes beside the operands",
                              .scale = Axis::Scale::log},
                        .layers = {{.table = "memory", .y = "megabytes", .series = "pattern"}}};
  return {{"time",
           "Dense attention grows with the square of the length, windows and hashing in a line",
           "Causal, 4 heads of 64, " + std::to_string(lab.context.threads()) +
               " threads of this machine. The window is faster than dense attention " +
               window_from + ", hashing " + lsh_from +
               ". The cost model is pairs × 4d operations at a share of the "
               "peak of this machine (75 % dense, 60 % window, 35 % hashed).",
           {{"rows", rows}, {"model", model}, {"marks", marks}},
           spec_of(times)},
          {"memory",
           "No pattern needs memory for all pairs, not even the dense one",
           "The most that a call held beside its operands, its result included, against what a "
           "matrix of "
           "all probabilities would take.",
           {{"memory", memory}},
           spec_of(bytes)}};
}

}  // namespace

Section how_sparse(const Lab& lab) {
  Section section{
      .name = "sparsity",
      .title = "How sparse is attention, and what may be left out?",
      .text =
          "Softmax gives every key a probability above 0, but often a few keys have nearly "
          "all of it. <b>A sparse pattern is exact for what it keeps and blind for the "
          "rest</b>: what matters is the probability that it keeps."};
  const std::vector<HeadKind> kinds = head_kinds(tokens, dim, lab.seed);
  section.figures = {window_figure(kinds, lab), largest_figure(kinds, lab)};
  lab.progress(0.2);
  section.figures.push_back(lsh_figure(kinds, lab));
  lab.progress(0.4);
  for (Figure& figure : cost_figures(lab)) section.figures.push_back(std::move(figure));
  return section;
}

}  // namespace rapt::lab
