#include <algorithm>
#include <cmath>

#include "base/indexed_vector.h"
#include "lab/charts/chart.h"
#include "lab/experiments/numbers.h"
#include "lab/experiments/softmax_theory.h"
#include "lab/section_figures.h"

namespace rapt::lab {
using namespace detail;
namespace {

constexpr Index row_keys = 512;

/// Zeros are drawn here: a logarithmic axis has no 0.
constexpr double least = 1e-12;

/// d probabilities / d logits by the engine's backward pass: queries of one number 1, values that
/// are unit vectors, and upstream gradients that are unit vectors too. [count][count]
std::vector<double> jacobian(const std::vector<float>& logits, double factor, const Lab& lab) {
  const Index count = std::ssize(logits);
  Tensor q({1, 1, 1, 1}), k({1, 1, count, 1}), v({1, 1, count, count});
  q.data()[0] = 1;
  for (Index i = 0; i < count; ++i) {
    k.data()[i] = element(logits, i) * static_cast<float>(factor);
    v.data()[i * count + i] = 1;
  }
  Attention how;
  how.scale = Scale::none();
  const Attended attended = attend(q.view(), k.view(), v.view(), how, lab.context);
  std::vector<double> made;
  for (Index i = 0; i < count; ++i) {
    Tensor dout({1, 1, 1, count});
    dout.data()[i] = 1;
    const Gradients gradients =
        attend_backward(dout.view(), q.view(), k.view(), v.view(), attended, how, lab.context);
    for (const float slope : numbers_of(gradients.dk)) made.push_back(static_cast<double>(slope));
  }
  return made;
}

/// Queries of length 1, so that the scores of every row have the deviation of the scale.
Tensor directions(Index queries, Index dim, std::uint64_t seed) {
  Tensor q = normals({1, 1, queries, dim}, seed);
  const IndexedVector<double> lengths = row_lengths(q);
  for (Index r = 0; r < queries; ++r)
    for (Index c = 0; c < dim; ++c) q.data()[r * dim + c] /= static_cast<float>(lengths[r]);
  return q;
}

struct NormTables {
  Json measured = Json::array(), theory = Json::array(), limit = Json::array();
  double dead_from = 0;  // the first deviation at which the median is below 1/100
};

NormTables norm_tables(const Lab& lab) {
  constexpr Index queries = 1024, dim = 64;
  const Tensor k = normals({1, 1, row_keys, dim}, lab.seed + 5), v({1, 1, row_keys, 1});
  const Tensor q = directions(queries, dim, lab.seed + 6);
  NormTables made;
  for (double sigma = 0.0625; sigma < 70; sigma *= std::sqrt(2.0)) {
    Attention how;
    how.scale = Scale::value(sigma);
    how.stats = true;
    const Attended attended = attend(q.view(), k.view(), v.view(), how, lab.context);
    const std::vector<double> norms = wide(numbers_of(attended.stats->jacobian_norm));
    const double middle = median(norms);
    const auto add = [&](Json& table, const char* what, double norm) {
      table.push_back({{"deviation", sigma}, {"what", what}, {"norm", std::max(norm, least)}});
    };
    add(made.measured, "root mean square", root_mean_square(norms));
    add(made.measured, "median", middle);
    add(made.theory, "root mean square",
        std::sqrt(softmax_theory(row_keys, sigma).jacobian_square));
    if (sigma > 5) add(made.limit, "root mean square", saturated_jacobian(row_keys, sigma));
    if (middle < 0.01 && made.dead_from == 0) made.dead_from = sigma;
  }
  return made;
}

}  // namespace

Figure jacobian_figure(const Lab& lab) {
  constexpr Index count = 12;
  const Tensor drawn = normals({count}, lab.seed + 2);
  const std::vector<float> logits(drawn.data(), drawn.data() + count);
  Json cells = Json::array();
  for (const double factor :
       {0.0, 0.125, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0}) {
    const IndexedVector<double> slopes = jacobian(logits, factor, lab);
    for (Index i = 0; i < count; ++i)
      for (Index j = 0; j < count; ++j)
        cells.push_back({{"scale", factor},
                         {"probability of key", i},
                         {"score of key", j},
                         {"slope", slopes[i * count + j]}});
  }
  const HeatMap chart{
      .table = "cells",
      .x = {.field = "score of key", .title = "score of key j", .scale = Axis::Scale::band},
      .y = {.field = "probability of key",
            .title = "probability of key i",
            .scale = Axis::Scale::band},
      .value = "slope",
      .title = "∂pᵢ/∂sⱼ",
      .diverging = true,
      .range = {-0.25, 0.25},
      .sliders = {{.field = "scale", .title = "scores times", .start = 1}}};
  return {
      "jacobian",
      "What softmax lets through: move the scale, and the slopes fade at both ends",
      "Each cell is how much the probability of key i moves with the score of key j: pᵢ(1 − pᵢ) on "
      "the diagonal, −pᵢpⱼ off it, symmetric. A slope is 0 in four cases only: on the "
      "diagonal where pᵢ is 0 or 1, off it where pᵢ or pⱼ is 0. The larger the scale, the more "
      "cells are one of these, until only keys that nearly tie with the winner are left; where "
      "there is none, no learning gets through.",
      {{"cells", cells}},
      spec_of(chart)};
}

Figure norm_figure(const Lab& lab) {
  const NormTables tables = norm_tables(lab);
  LineChart chart = measured_and_theory({.field = "deviation",
                                         .title = "standard deviation of the scores",
                                         .scale = Axis::Scale::log},
                                        {.field = "norm",
                                         .title = "Frobenius norm of the slopes",
                                         .scale = Axis::Scale::log,
                                         .range = {1e-6, 1}},
                                        "what");
  chart.layers.push_back({.table = "limit",
                          .y = "norm",
                          .series = "what",
                          .label = "limit for large scores, √(x(1 − x)/3)"});
  chart.layers.push_back({.table = "flat",
                          .mark = Layer::Mark::rule,
                          .y = "norm",
                          .label = "all keys alike, √(n − 1)/n"});
  return {"norm",
          tables.dead_from > 0 ? "From a deviation of " + short_text(tables.dead_from) +
                                     " on, the slopes of the typical row are below 1/100"
                               : "The slopes of the typical row fade as scores spread",
          "512 keys, scores of a given spread; with standard normal queries and keys it is √d "
          "without a scale and 1 with 1/√d. Slopes are largest where a few keys compete: a row may "
          "be sharp, as at a deviation of 8, and still learn. The root "
          "mean square stays up, because a rare row with two equal winners has slopes near ½; the "
          "median row falls to nothing.",
          {{"measured", tables.measured},
           {"theory", tables.theory},
           {"limit", tables.limit},
           {"flat", Json::array({{{"norm", uniform_jacobian(row_keys)}}})}},
          spec_of(chart)};
}

}  // namespace rapt::lab
