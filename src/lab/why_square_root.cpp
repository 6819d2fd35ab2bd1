#include <cmath>
#include <set>

#include "lab/chart.h"
#include "lab/closed_forms.h"
#include "lab/experiment.h"
#include "lab/numbers.h"

namespace rapt::lab {
namespace {

constexpr Index keys = 512, queries = 2048;

/// What the engine measures of standard normal queries and keys.
struct Measured {
  double variance, entropy, largest, effective;
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
  const double entropy = mean(numbers_of(stats.entropy));
  return {mean(numbers_of(stats.logit_variance)), entropy, mean(numbers_of(stats.largest)),
          std::exp(entropy)};
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
                               {"effective keys", seen.effective}});
      const SoftmaxTheory theory = attention_theory(keys, dim, scale.at(dim));
      made.theory.push_back({{"d", dim},
                             {"scale", scale.name},
                             {"variance", scale.at(dim) * scale.at(dim) * static_cast<double>(dim)},
                             {"entropy", theory.entropy}});
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

Figure variance_figure(const Curves& curves) {
  const LineChart chart{
      .x = dim_axis,
      .y = {.field = "variance", .title = "variance of the scores", .scale = Axis::Scale::log},
      .layers = {{.table = "measured",
                  .mark = Layer::Mark::points,
                  .y = "variance",
                  .series = "scale",
                  .label = "measured"},
                 {.table = "theory",
                  .mark = Layer::Mark::dashes,
                  .y = "variance",
                  .series = "scale",
                  .label = "theory: d, 1, 1/d"}}};
  return {
      "variance",
      "Only 1/√d keeps the spread of the scores the same for every d",
      "A score is a sum of d products of standard normal numbers, so its variance is d: without "
      "a scale, scores of wide heads are large. Divided by √d the variance is 1 whatever d is; "
      "divided by d it shrinks towards 0.",
      {{"measured", curves.measured}, {"theory", curves.theory}},
      spec_of(chart)};
}

Figure entropy_figure(const Curves& curves) {
  Json limit = Json::array();
  limit.push_back(
      {{"entropy", std::log(static_cast<double>(keys))}, {"meaning", "all keys alike: ln 512"}});
  const LineChart chart{.x = dim_axis,
                        .y = {.field = "entropy", .title = "entropy of a row, nats"},
                        .layers = {{.table = "measured",
                                    .mark = Layer::Mark::points,
                                    .y = "entropy",
                                    .series = "scale",
                                    .label = "measured"},
                                   {.table = "theory",
                                    .mark = Layer::Mark::dashes,
                                    .y = "entropy",
                                    .series = "scale",
                                    .label = "theory"},
                                   {.table = "limit",
                                    .mark = Layer::Mark::rule,
                                    .y = "entropy",
                                    .label = "all keys alike"}}};
  const double none = value_at(curves.measured, 512, "none", "effective keys");
  const double root = value_at(curves.measured, 512, "1/√d", "effective keys");
  return {"entropy",
          "Without a scale a wide head looks at one key; with 1/d it looks at all of them alike",
          "At d = 512 a row of softmax over 512 keys is spread over " + short_text(none) +
              " keys without a scale (e to the entropy) and over " + short_text(root) +
              " with 1/√d. Theory is the mean over normal scores, by quadrature.",
          {{"measured", curves.measured}, {"theory", curves.theory}, {"limit", limit}},
          spec_of(chart)};
}

Figure largest_figure(const Curves& curves) {
  const LineChart chart{
      .x = dim_axis,
      .y = {.field = "largest", .title = "mean largest probability", .scale = Axis::Scale::log},
      .layers = {{.table = "measured", .y = "largest", .series = "scale"}}};
  return {
      "largest",
      "The largest probability tells saturation at a glance",
      "Near 1, one key takes all and the others are not heard. Near 1/512, the row is an average "
      "of everything and says nothing about any key.",
      {{"measured", curves.measured}},
      spec_of(chart)};
}

/// The same logits under every scale of a slider.
Figure softmax_figure(const Lab& lab) {
  constexpr Index count = 16;
  const Tensor drawn = normals({count}, lab.seed + 2);
  const std::vector<float> logits(drawn.data(), drawn.data() + count);
  Json rows = Json::array();
  for (int step = 0; step <= 40; ++step) {
    const double factor = step * 0.2;
    const std::vector<double> p = softmax_row(logits, factor, lab.context);
    double entropy = 0;
    for (const double x : p)
      if (x > 0) entropy -= x * std::log(x);
    for (Index i = 0; i < count; ++i)
      rows.push_back({{"scale", factor},
                      {"key", i},
                      {"score", logits[static_cast<std::size_t>(i)]},
                      {"probability", p[static_cast<std::size_t>(i)]},
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

/// Distinct values of a row's probabilities after rounding to bf16.
Index distinct(const std::vector<double>& row) {
  std::set<float> seen;
  for (const double p : row) seen.insert(static_cast<float>(Bf16(static_cast<float>(p))));
  return std::ssize(seen);
}

/// One row of probabilities by the engine.
std::vector<double> probabilities(Index dim, Index count, const Scale& scale, const Lab& lab) {
  const Tensor q = normals({1, 1, 1, dim}, lab.seed + 3),
               k = normals({1, 1, count, dim}, lab.seed + 4);
  Tensor v({1, 1, count, count});
  for (Index i = 0; i < count; ++i) v.data()[i * count + i] = 1;
  Attention how;
  how.scale = scale;
  return wide(numbers_of(attend(q.view(), k.view(), v.view(), how, lab.context).out));
}

Figure resolution_figure(const Lab& lab) {
  constexpr Index count = 512;
  Json rows = Json::array();
  for (const Index dim : {16, 32, 64, 128, 256, 512})
    for (const NamedScale& scale : compared_scales()) {
      if (scale.name == "none") continue;
      const std::vector<double> p = probabilities(dim, count, scale.scale, lab);
      rows.push_back({{"d", dim}, {"scale", scale.name}, {"distinct values", distinct(p)}});
    }
  const auto last = [&](const char* scale) {
    return std::to_string(static_cast<Index>(value_at(rows, 512, scale, "distinct values")));
  };
  const LineChart chart{.x = dim_axis,
                        .y = {.field = "distinct values", .title = "distinct probabilities of 512"},
                        .layers = {{.table = "rows", .y = "distinct values", .series = "scale"}}};
  return {"resolution",
          "Divided by d, a row of bf16 probabilities can hardly tell its keys apart",
          "A row over 512 keys, its probabilities rounded to bf16 as mixed-precision training "
          "stores them: at d = 512 there are " +
              last("1/d") + " different values left with 1/d and " + last("1/√d") +
              " with 1/√d. bf16 has 8 bits for numbers that are all nearly 1/512.",
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
  section.figures = {variance_figure(measured), entropy_figure(measured), largest_figure(measured),
                     softmax_figure(lab), resolution_figure(lab)};
  lab.progress(1);
  return section;
}

}  // namespace rapt::lab
