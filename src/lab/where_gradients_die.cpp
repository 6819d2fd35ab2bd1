#include <cmath>

#include "lab/chart.h"
#include "lab/closed_forms.h"
#include "lab/experiment.h"
#include "lab/numbers.h"
#include "lab/small_training.h"

namespace rapt::lab {
namespace {

/// d probabilities / d logits by the engine's backward pass: queries of one number 1, values that
/// are unit vectors, and upstream gradients that are unit vectors too. [count][count]
std::vector<double> jacobian(const std::vector<float>& logits, double factor, const Lab& lab) {
  const Index count = std::ssize(logits);
  Tensor q({1, 1, 1, 1}), k({1, 1, count, 1}), v({1, 1, count, count});
  q.data()[0] = 1;
  for (Index i = 0; i < count; ++i) {
    k.data()[i] = logits[static_cast<std::size_t>(i)] * static_cast<float>(factor);
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
        attend_backward(dout.view(), q.view(), k.view(), v.view(), attended.out.view(),
                        attended.rows, how, lab.context);
    for (const float slope : numbers_of(gradients.dk)) made.push_back(static_cast<double>(slope));
  }
  return made;
}

Figure jacobian_figure(const Lab& lab) {
  constexpr Index count = 12;
  const Tensor drawn = normals({count}, lab.seed + 2);
  const std::vector<float> logits(drawn.data(), drawn.data() + count);
  Json cells = Json::array();
  for (const double factor :
       {0.0, 0.125, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0}) {
    const std::vector<double> slopes = jacobian(logits, factor, lab);
    for (Index i = 0; i < count; ++i)
      for (Index j = 0; j < count; ++j)
        cells.push_back({{"scale", factor},
                         {"probability of key", i},
                         {"score of key", j},
                         {"slope", slopes[static_cast<std::size_t>(i * count + j)]}});
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
      "What softmax lets through: the slopes fade at both ends of the scale",
      "Each cell is how much the probability of key i moves with the score of key j: pᵢ(1 − pᵢ) on "
      "the diagonal, −pᵢpⱼ beside it, the same both ways. A slope is 0 in four cases only: pᵢ or "
      "pⱼ "
      "is 0, pᵢ is 1, or pⱼ is 1 (then pᵢ is 0). At a large scale one key has all the probability "
      "and every cell is one of these.",
      {{"cells", cells}},
      spec_of(chart)};
}

constexpr Index keys = 512;

Figure norm_figure(const Lab& lab) {
  Json measured = Json::array(), theory = Json::array(), flat = Json::array();
  constexpr Index queries = 512;
  // Scores of one deviation: queries of length 1 look at normal keys.
  constexpr Index dim = 64;
  const Tensor k = normals({1, 1, keys, dim}, lab.seed + 5), v({1, 1, keys, 1});
  Tensor q = normals({1, 1, queries, dim}, lab.seed + 6);
  const std::vector<double> lengths = row_lengths(q);
  for (Index r = 0; r < queries; ++r)
    for (Index c = 0; c < dim; ++c)
      q.data()[r * dim + c] /= static_cast<float>(lengths[static_cast<std::size_t>(r)]);
  for (double sigma = 0.0625; sigma <= 33; sigma *= std::sqrt(2.0)) {
    Attention how;
    how.scale = Scale::value(sigma);
    how.stats = true;
    const Attended attended = attend(q.view(), k.view(), v.view(), how, lab.context);
    const std::vector<double> norms = wide(numbers_of(attended.stats->jacobian_norm));
    measured.push_back(
        {{"deviation", sigma}, {"what", "root mean square"}, {"norm", root_mean_square(norms)}});
    measured.push_back({{"deviation", sigma}, {"what", "median"}, {"norm", median(norms)}});
    theory.push_back({{"deviation", sigma},
                      {"what", "root mean square"},
                      {"norm", std::sqrt(softmax_theory(keys, sigma).jacobian_square)}});
  }
  flat.push_back({{"norm", uniform_jacobian(keys)}, {"meaning", "all keys alike: √(n − 1)/n"}});
  const LineChart chart{
      .x = {.field = "deviation",
            .title = "standard deviation of the scores",
            .scale = Axis::Scale::log},
      .y = {.field = "norm",
            .title = "Frobenius norm of the slopes",
            .scale = Axis::Scale::log,
            .range = {1e-6, 1}},
      .layers = {
          {.table = "measured",
           .mark = Layer::Mark::points,
           .y = "norm",
           .series = "what",
           .label = "measured"},
          {.table = "theory",
           .mark = Layer::Mark::dashes,
           .y = "norm",
           .series = "what",
           .label = "theory"},
          {.table = "flat", .mark = Layer::Mark::rule, .y = "norm", .label = "all keys alike"}}};
  return {
      "norm",
      "Beyond a deviation of about 8 the typical row passes almost no gradient",
      "512 keys, scores of a given spread. The slopes are largest where a few keys compete. The "
      "mean stays up for long, because a rare row with two equal winners has slopes near ½; the "
      "median row falls to nothing.",
      {{"measured", measured}, {"theory", theory}, {"flat", flat}},
      spec_of(chart)};
}

/// Lengths of the gradients of queries and keys under standard normal everything.
struct GradientLengths {
  std::vector<double> queries, keys;
};

GradientLengths gradient_lengths(Index dim, const Scale& scale, const Lab& lab) {
  constexpr Index queries = 1024, value_dim = 64;
  const Tensor q = normals({1, 1, queries, dim}, lab.seed),
               k = normals({1, 1, keys, dim}, lab.seed + 1);
  const Tensor v = normals({1, 1, keys, value_dim}, lab.seed + 2);
  const Tensor dout = normals({1, 1, queries, value_dim}, lab.seed + 3);
  Attention how;
  how.scale = scale;
  const Attended attended = attend(q.view(), k.view(), v.view(), how, lab.context);
  const Gradients gradients = attend_backward(dout.view(), q.view(), k.view(), v.view(),
                                              attended.out.view(), attended.rows, how, lab.context);
  return {row_lengths(gradients.dq), row_lengths(gradients.dk)};
}

std::vector<Figure> gradient_figures(const Lab& lab) {
  Json rows = Json::array(), key_rows = Json::array(), theory = Json::array();
  double first = 0, last = 0;
  for (const Index dim : {8, 16, 32, 64, 128, 256, 512})
    for (const NamedScale& scale : compared_scales()) {
      const GradientLengths lengths = gradient_lengths(dim, scale.scale, lab);
      const auto add = [&](Json& to, const std::vector<double>& of) {
        to.push_back({{"d", dim},
                      {"scale", scale.name},
                      {"median", std::max(1e-12, median(of))},
                      {"root mean square", root_mean_square(of)}});
      };
      add(rows, lengths.queries);
      add(key_rows, lengths.keys);
      theory.push_back({{"d", dim},
                        {"scale", scale.name},
                        {"root mean square", query_gradient_theory(keys, dim, 64, scale.at(dim))}});
      if (scale.name == "none" && dim == 64) first = median(lengths.queries);
      if (scale.name == "none" && dim == 512) last = median(lengths.queries);
    }
  const Axis x{.field = "d", .title = "dimension of a head, d", .scale = Axis::Scale::log};
  const LineChart medians{
      .x = x,
      .y = {.field = "median", .title = "median |gradient of a query|", .scale = Axis::Scale::log},
      .layers = {{.table = "rows", .y = "median", .series = "scale"}}};
  const LineChart means{.x = x,
                        .y = {.field = "root mean square",
                              .title = "RMS |gradient of a query|",
                              .scale = Axis::Scale::log},
                        .layers = {{.table = "rows",
                                    .mark = Layer::Mark::points,
                                    .y = "root mean square",
                                    .series = "scale",
                                    .label = "measured"},
                                   {.table = "theory",
                                    .mark = Layer::Mark::dashes,
                                    .y = "root mean square",
                                    .series = "scale",
                                    .label = "theory"}}};
  const LineChart of_keys{
      .x = x,
      .y = {.field = "median", .title = "median |gradient of a key|", .scale = Axis::Scale::log},
      .layers = {{.table = "rows", .y = "median", .series = "scale"}}};
  return {
      {"median",
       "Without a scale the typical query stops learning as d grows",
       "Median length of the gradient that reaches a query, standard normal values and upstream "
       "gradients. From d = 64 to 512 it falls by a factor of " +
           short_text(first / std::max(last, 1e-12)) +
           " without a scale, stays with 1/√d, and falls as 1/√d with 1/d.",
       {{"rows", rows}},
       spec_of(medians)},
      {"mean",
       "The mean gradient hides it: it grows while almost all rows die",
       "The same gradients, root mean square: without a scale it rises with d, because the few "
       "rows "
       "in which two keys tie get enormous gradients. Judge saturation by the median, never by the "
       "mean.",
       {{"rows", rows}, {"theory", theory}},
       spec_of(means)},
      {"keys",
       "Keys starve later than queries, because a key hears from many queries",
       "Median length of the gradient that reaches a key, from 1,024 queries: a key that wins no "
       "query "
       "hears nothing, one that wins some hears from them only.",
       {{"rows", key_rows}},
       spec_of(of_keys)}};
}

ModelConfig small_model(const Scale& scale, std::uint64_t seed) {
  ModelConfig config;
  config.vocabulary = SmallLanguage::vocabulary;
  config.width = 128;
  config.layers = 2;
  config.heads = 1;
  config.ffn = 256;
  config.scale = scale;
  config.seed = seed;
  return config;
}

std::vector<Figure> training_figures(const Lab& lab, double from) {
  std::vector<NamedScale> scales = compared_scales();
  scales.push_back({"log n", Scale::log_n(64)});
  const SmallLanguage language(lab.seed);
  const SmallTraining how{.steps = 120, .items = 8, .tokens = 64};
  constexpr int seeds = 3;
  Json rows = Json::array(), mean_rows = Json::array();
  Index done = 0;
  std::string ends;
  for (const NamedScale& scale : scales) {
    std::vector<std::vector<TrainingStep>> runs;
    for (int seed = 0; seed < seeds; ++seed) {
      Transformer model(small_model(scale.scale, lab.seed + static_cast<std::uint64_t>(seed)));
      runs.push_back(train_small(model, language, how, lab.context, [&](Index) {
        lab.progress(from + (1 - from) * static_cast<double>(++done) /
                                static_cast<double>(how.steps * seeds * std::ssize(scales)));
      }));
      for (const TrainingStep& step : runs.back())
        rows.push_back({{"scale", scale.name},
                        {"seed", seed},
                        {"step", step.step},
                        {"loss", step.loss},
                        {"gradient norm", step.gradient_norm},
                        {"entropy", step.entropy},
                        {"largest", step.largest}});
    }
    for (std::size_t i = 0; i < runs[0].size(); ++i) {
      Json row = {{"scale", scale.name}, {"step", runs[0][i].step}};
      double low = 1e9, high = 0, loss = 0, norm = 0, entropy = 0;
      for (const auto& run : runs) {
        low = std::min(low, run[i].loss);
        high = std::max(high, run[i].loss);
        loss += run[i].loss / seeds;
        norm += run[i].gradient_norm / seeds;
        entropy += run[i].entropy / seeds;
      }
      mean_rows.push_back({{"scale", scale.name},
                           {"step", runs[0][i].step},
                           {"loss", loss},
                           {"lowest", low},
                           {"highest", high},
                           {"gradient norm", norm},
                           {"entropy", entropy}});
      if (i + 1 == runs[0].size())
        ends += (ends.empty() ? "" : ", ") + scale.name + " " + short_text(loss);
    }
  }
  Json floor = Json::array();
  floor.push_back({{"loss", language.best_loss(language.text(20000, lab.seed + 9))},
                   {"meaning", "entropy of the language"}});
  const Axis x{.field = "step", .title = "step"};
  const auto chart = [&](const char* field, const char* title, Axis::Scale scale) {
    return LineChart{.x = x,
                     .y = {.field = field, .title = title, .scale = scale},
                     .layers = {{.table = "means", .y = field, .series = "scale"}}};
  };
  LineChart losses = chart("loss", "loss, nats per token", Axis::Scale::linear);
  losses.layers.push_back({.table = "means",
                           .mark = Layer::Mark::band,
                           .y = "lowest",
                           .y2 = "highest",
                           .series = "scale",
                           .label = "lowest to highest of 3 seeds"});
  losses.layers.push_back(
      {.table = "floor", .mark = Layer::Mark::rule, .y = "loss", .label = "the best possible"});
  const std::string setting =
      "Two layers, one head of d = 128, the same texts and steps; means of 3 seeds.";
  return {
      {"training",
       "The same model learns at different speed under different scales",
       setting + " Loss after " + std::to_string(how.steps) + " steps: " + ends +
           ". log n is log base 64 of the keys a query sees, over √d.",
       {{"means", mean_rows}, {"floor", floor}, {"runs", rows}},
       spec_of(losses)},
      {"training-norm",
       "Without a scale gradients start large and uneven; with 1/d attention gets little",
       setting + " Norm of all gradients before clipping to 1.",
       {{"means", mean_rows}},
       spec_of(chart("gradient norm", "norm of the gradient", Axis::Scale::log))},
      {"training-entropy",
       "Entropy shows what a model does with its attention while it learns",
       setting + " Without a scale attention is sharp before it knows where to look; with 1/d it "
                 "stays spread over everything for long.",
       {{"means", mean_rows}},
       spec_of(chart("entropy", "mean entropy, nats", Axis::Scale::linear))}};
}

}  // namespace

Section where_gradients_die(const Lab& lab) {
  Section section{
      .name = "gradients",
      .title = "When does softmax saturate, and why do gradients vanish?",
      .text =
          "A gradient passes softmax through its slopes ∂pᵢ/∂sⱼ = pᵢ(δᵢⱼ − pⱼ). <b>When one "
          "probability is nearly 1, all slopes are nearly 0</b>: whatever the rest of the "
          "network wants, the scores do not hear it."};
  section.figures = {jacobian_figure(lab), norm_figure(lab)};
  lab.progress(0.05);
  for (Figure& figure : gradient_figures(lab)) section.figures.push_back(std::move(figure));
  lab.progress(0.3);
  for (Figure& figure : training_figures(lab, 0.3)) section.figures.push_back(std::move(figure));
  return section;
}

}  // namespace rapt::lab
