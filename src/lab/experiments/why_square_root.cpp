#include <cmath>

#include "base/indexed_vector.h"
#include "lab/charts/chart.h"
#include "lab/experiments/numbers.h"
#include "lab/experiments/softmax_theory.h"
#include "lab/lab.h"
#include "lab/section_figures.h"

namespace rapt::lab {
using namespace detail;
namespace {

constexpr Index keys = 512, queries = 2048;

/// What the engine measures of standard normal queries and keys.
struct Measured {
  double variance, entropy;
  double largest;  // harmonic mean of the rows' largest probabilities: its theory is exact
};

Measured measure(Index dim, const Scale& scale, const Lab& lab) {
  const Tensor q = normals({1, 1, queries, dim}, lab.seed);
  const Tensor k = normals({1, 1, keys, dim}, lab.seed + 1);
  const Tensor v({1, 1, keys, 1});
  Attention how;
  how.scale = scale;
  how.stats = true;
  const Attended attended = attend(q.view(), k.view(), v.view(), how, lab.context);
  const Stats& stats = *attended.stats;
  std::vector<double> inverse = wide(numbers_of(stats.largest));
  for (double& largest : inverse) largest = 1 / largest;
  return {mean(numbers_of(stats.logit_variance)), mean(numbers_of(stats.entropy)),
          1 / mean(inverse)};
}

struct Curves {
  Json measured = Json::array(), theory = Json::array();
};

Curves curves(const Lab& lab) {
  Curves made;
  const std::vector<Index> dims = {4, 8, 16, 32, 64, 128, 256, 512};
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const Index dim = dims[i];
    for (const NamedScale& scale : compared_scales()) {
      const Measured seen = measure(dim, scale.scale, lab);
      made.measured.push_back({{"d", dim},
                               {"scale", scale.name},
                               {"variance", seen.variance},
                               {"entropy", seen.entropy},
                               {"largest", seen.largest},
                               {"effective keys", std::exp(seen.entropy)}});
      const SoftmaxTheory theory = attention_theory(keys, dim, scale.at(dim));
      made.theory.push_back({{"d", dim},
                             {"scale", scale.name},
                             {"variance", scale.at(dim) * scale.at(dim) * static_cast<double>(dim)},
                             {"entropy", theory.entropy},
                             {"largest", 1 / theory.inverse_largest},
                             {"effective keys", std::exp(theory.entropy)}});
    }
    lab.progress(0.8 * static_cast<double>(i + 1) / static_cast<double>(dims.size()));
  }
  return made;
}

double value_at(const Json& rows, Index dim, const char* scale, const char* field) {
  for (const Json& row : rows)
    if (row["d"] == dim && row["scale"] == scale) return row[field].get<double>();
  return 0;
}

const Axis dim_axis{.field = "d", .title = "dimension of a head, d", .scale = Axis::Scale::log};

/// Points and curves over d, with a line for what the numbers would be if all keys were alike.
Figure figure_over_dim(const Curves& curves, const Axis& y, double flat) {
  LineChart chart = measured_and_theory(dim_axis, y, "scale");
  Figure figure;
  figure.data = {{"measured", curves.measured}, {"theory", curves.theory}};
  if (flat > 0) {
    chart.layers.push_back({.table = "flat",
                            .mark = Layer::Mark::rule,
                            .y = y.field,
                            .label = "if all keys count alike"});
    figure.data["flat"] = Json::array({{{y.field, flat}}});
  }
  figure.spec = spec_of(chart);
  return figure;
}

Figure variance_figure(const Curves& curves) {
  Figure figure = figure_over_dim(
      curves, {.field = "variance", .title = "variance of the scores", .scale = Axis::Scale::log},
      0);
  figure.name = "variance";
  figure.title = "Only 1/√d keeps the spread of the scores the same for every d";
  figure.text =
      "A score is a sum of d products of standard normal numbers, so its variance is d: without a "
      "scale, scores of wide heads are large. Divided by √d the variance is 1 whatever d is; "
      "divided by d it is 1/d and shrinks to nothing.";
  return figure;
}

Figure entropy_figure(const Curves& curves) {
  Figure figure = figure_over_dim(
      curves, {.field = "entropy", .title = "entropy of a row, nats (0: one key takes all)"},
      std::log(static_cast<double>(keys)));
  figure.name = "entropy";
  figure.title = "Entropy falls with d without a scale, and stays where it is with 1/√d";
  figure.text =
      "Entropy says how widely a row of softmax spreads: 0 if one key has everything, ln 512 = "
      "6.24 if 512 keys count alike. Points are means over 2,048 queries, the curves what follows "
      "for normal scores by integration, with nothing fitted.";
  return figure;
}

Figure effective_figure(const Curves& curves) {
  const auto at = [&](const char* scale) {
    return short_text(value_at(curves.measured, 512, scale, "effective keys"));
  };
  Figure figure = figure_over_dim(
      curves,
      {.field = "effective keys", .title = "effective number of keys", .scale = Axis::Scale::log},
      static_cast<double>(keys));
  figure.name = "effective-keys";
  figure.title = "Of 512 keys, a 512-dimensional head attends to " + at("none") +
                 " without a scale, " + at("1/√d") + " with 1/√d and " + at("1/d") + " with 1/d";
  figure.text =
      "The same as a number of keys: e to the entropy, which is n if n keys share the row alike. "
      "With too few it ignores all keys but one; with all of them it cannot distinguish any; 1/√d "
      "allows both.";
  return figure;
}

Figure largest_figure(const Curves& curves) {
  Figure figure = figure_over_dim(
      curves,
      {.field = "largest", .title = "largest probability of a row", .scale = Axis::Scale::log},
      1 / static_cast<double>(keys));
  figure.name = "largest";
  figure.title = "The largest probability tells saturation at a glance";
  figure.text =
      "Near 1, one key takes all: softmax is <b>saturated</b>. Near 1/512, the row is an average "
      "of "
      "everything. Harmonic means over the rows, for which theory has an exact integral.";
  return figure;
}

/// The same logits under every scale of a slider.
Figure softmax_figure(const Lab& lab) {
  constexpr Index count = 16;
  const Tensor drawn = normals({count}, lab.seed + 2);
  const IndexedVector<float> logits(drawn.data(), drawn.data() + count);
  Json rows = Json::array();
  for (const double factor :
       {0.0, 0.125, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0}) {
    const IndexedVector<double> p = softmax_row(logits, factor, lab.context);
    double entropy = 0;
    for (const double x : p)
      if (x > 0) entropy -= x * std::log(x);
    for (Index i = 0; i < count; ++i)
      rows.push_back({{"scale", factor},
                      {"key", i},
                      {"score", logits[i]},
                      {"probability", p[i]},
                      {"entropy of the row", entropy}});
  }
  const BarChart chart{.table = "rows",
                       .x = {.field = "key", .title = "key", .scale = Axis::Scale::band},
                       .y = {.field = "probability", .title = "probability", .range = {0, 1}},
                       .sliders = {{.field = "scale", .title = "scores times", .start = 1}}};
  return {"softmax",
          "Move the scale: one row of softmax from flat to winner-takes-all",
          "Sixteen fixed standard normal scores, multiplied by the slider's number before softmax. "
          "8 is what standard normal queries and keys of d = 64 have without a scale, 1 what 1/√d "
          "gives, 0.125 what 1/d gives.",
          {{"rows", rows}},
          spec_of(chart)};
}

}  // namespace

Section why_square_root(const Lab& lab) {
  Section section{.name = "scale",
                  .title = "Why are scores divided by √d?",
                  .text =
                      "A score is a product of two vectors of d numbers. Its size grows with √d, "
                      "and softmax reacts to size: <b>too large, and one key takes all; too "
                      "small, and all keys count alike</b>. Dividing by √d makes the size "
                      "independent of d. Here 2,048 standard normal queries look at 512 keys."};
  const Curves measured = curves(lab);
  section.figures = {variance_figure(measured),  softmax_figure(lab),      entropy_figure(measured),
                     effective_figure(measured), largest_figure(measured), resolution_figure(lab),
                     underflow_figure(lab)};
  section.takeaway =
      "Divide by √d, because a score is a sum of d products and such a sum has the size √d. Then "
      "softmax sees numbers of size 1 for every d, sharp enough to choose and soft enough to "
      "learn.";
  lab.progress(1);
  return section;
}

}  // namespace rapt::lab
