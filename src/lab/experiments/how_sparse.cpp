#include <algorithm>
#include <optional>

#include "lab/charts/chart.h"
#include "lab/experiments/head_kind.h"
#include "lab/experiments/numbers.h"
#include "lab/experiments/pattern_costs.h"
#include "lab/lab.h"
#include "rapt/lsh.h"

namespace rapt::lab {
using namespace detail;
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
      "<code>rapt heads</code> measures the same of your model.",
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
  const auto percent = [&](const char* head) {
    for (const Json& row : rows)
      if (row["head"] == head && row["k"] == 64)
        return short_text(100 * row["mass"].get<double>()) + " %";
    return std::string();
  };
  const LineChart chart{
      .x = {.field = "k", .title = "k, the number of keys kept", .scale = Axis::Scale::log},
      .y = mass_axis,
      .layers = {{.table = "rows", .y = "mass", .series = "head"}}};
  return {
      "top-k",
      "The best 64 keys hold " + percent("local") + " of a local head, " + percent("content") +
          " of one that looks for its kind, " + percent("diffuse") + " of one that looks at all",
      "Probability of the k largest keys of a row, mean over late queries: the bound for any "
      "sparse "
      "pattern. A head whose curve rises late is not sparse at all, and no pattern of few keys can "
      "replace it.",
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
                        {"buckets", std::to_string(buckets) + " buckets"},
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
              short_text(100 * best) + " % of the probability, for a head without structure " +
              short_text(100 * diffuse) + " %. More rounds find more, and multiply more pairs.",
          {{"rows", rows}},
          spec_of(chart)};
}

double mass_at(const Json& rows, const std::string& head, const std::string& keys, Index size) {
  for (const Json& row : rows)
    if (row["head"] == head && row["keys"] == keys && row["window"] == size)
      return row["mass"].get<double>();
  return 0;
}

/// What the figures above mean for a choice.
Figure advice_figure(const Json& windows, double content_mass, const PatternCosts& costs) {
  const auto percent = [&](const char* head, const char* keys) {
    return short_text(100 * mass_at(windows, head, keys, 256)) + " %";
  };
  const auto from = [](const std::optional<Index>& tokens, const char* otherwise) {
    return tokens ? "from " + count_text(*tokens) + " tokens on" : std::string(otherwise);
  };
  Json rows = Json::array();
  const auto add = [&](const std::string& input, const char* pattern, const std::string& why) {
    rows.push_back({{"your input", input}, {"pattern", pattern}, {"because", why}});
  };
  add(costs.window_from ? "shorter than " + count_text(*costs.window_from) + " tokens"
                        : "any length",
      "<code>causal()</code> or <code>full()</code>",
      "dense attention loses nothing, and nothing is faster here");
  add(from(costs.window_from, "longer than measured here") + ", and what matters is near by",
      "<code>causal() & window(255, 0)</code>",
      short_text(costs.window_gain) + " times faster at " + count_text(costs.longest) +
          " tokens; keeps " + percent("local", "window alone") +
          " of a local head; layers of windows add up");
  add("the same, and heads rest on the first tokens, or some tokens concern all",
      "<code>causal() & (window(255, 0) | tokens({0, 1, 2, 3}))</code>",
      "a head that rests on the first tokens keeps " +
          percent("sink", "window and first 4 tokens") + " instead of " +
          percent("sink", "window alone"));
  add(from(costs.lsh_from, "longer than measured here") + ", and like looks for like anywhere",
      "<code>lsh(64, 4) & causal()</code>",
      short_text(costs.lsh_gain) + " times faster at " + count_text(costs.longest) +
          " tokens; keeps up to " + short_text(100 * content_mass) +
          " % of a head that looks for its kind");
  add("any length, and heads look at everything", "<code>causal()</code>",
      "no pattern of few keys keeps what such a head sees: a window of 256 keeps " +
          percent("diffuse", "window alone"));
  return {
      .name = "advice",
      .title = "Which pattern suits which length",
      .text =
          "Lengths are those at which a pattern was a tenth faster than dense attention on this "
          "machine. <code>rapt heads</code> says which kind of heads your model "
          "has.",
      .data = {{"advice", rows}},
      .spec = {},
      .columns = {"your input", "pattern", "because"}};
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
  double content_mass = 0;
  for (const Json& row : section.figures[2].data["rows"])
    if (row["head"] == "content head")
      content_mass = std::max(content_mass, row["mass"].get<double>());
  const PatternCosts costs = pattern_costs(lab, 0.4);
  section.figures.insert(section.figures.end(), costs.figures.begin(), costs.figures.end());
  section.figures.push_back(advice_figure(section.figures[0].data["rows"], content_mass, costs));
  const auto pays = [](const std::optional<Index>& tokens) {
    return tokens ? "from " + count_text(*tokens) + " tokens on" : std::string("at no length");
  };
  section.takeaway =
      "Short inputs want dense attention. On this machine a window pays " +
      pays(costs.window_from) + " where what matters is near by, hashing " + pays(costs.lsh_from) +
      " where like looks for like, and neither where heads look at everything: see first what your "
      "heads do.";
  return section;
}

}  // namespace rapt::lab
