#include <algorithm>

#include "lab/charts/chart.h"
#include "lab/experiments/numbers.h"
#include "lab/experiments/small_training.h"
#include "lab/section_figures.h"

namespace rapt::lab {
using namespace detail;
namespace {

constexpr int seeds = 3;
// Scale::log_n below has the same number of tokens as its base.
const SmallTraining short_training{.steps = 120, .items = 8, .tokens = 64};

std::vector<NamedScale> trained_scales() {
  std::vector<NamedScale> scales = compared_scales();
  scales.push_back({"log n", Scale::log_n(64)});
  return scales;
}

ModelConfig small_model(const Scale& scale, std::uint64_t seed) {
  ModelConfig config;
  config.vocab_size = SmallLanguage::vocabulary;
  config.hidden_size = 128;
  config.layers = 2;
  config.heads = 1;
  config.intermediate_size = 256;
  config.scale = scale;
  config.seed = seed;
  return config;
}

using Run = std::vector<TrainingStep>;

struct TrainingTables {
  Json runs = Json::array(), means = Json::array();

  void add(const std::string& scale, const std::vector<Run>& of_seeds) {
    for (std::size_t seed = 0; seed < of_seeds.size(); ++seed)
      for (const TrainingStep& step : of_seeds[seed])
        runs.push_back({{"scale", scale},
                        {"seed", seed},
                        {"step", step.step},
                        {"loss", step.loss},
                        {"gradient norm", step.gradient_norm},
                        {"entropy", step.entropy},
                        {"largest", step.largest}});
    for (std::size_t i = 0; i < of_seeds[0].size(); ++i) {
      Json row = {{"scale", scale}, {"step", of_seeds[0][i].step}};
      add_field(row, "loss", of_seeds, [&](const Run& run) { return run[i].loss; });
      add_field(row, "gradient norm", of_seeds,
                [&](const Run& run) { return run[i].gradient_norm; });
      add_field(row, "entropy", of_seeds, [&](const Run& run) { return run[i].entropy; });
      means.push_back(row);
    }
  }

  /// Mean, lowest and highest of the seeds.
  template <class Get>
  static void add_field(Json& row, const std::string& field, const std::vector<Run>& of_seeds,
                        const Get& get) {
    std::vector<double> numbers;
    for (const Run& run : of_seeds) numbers.push_back(get(run));
    row[field] = mean(numbers);
    row["lowest " + field] = *std::ranges::min_element(numbers);
    row["highest " + field] = *std::ranges::max_element(numbers);
  }

  /// The value of a field at the last step.
  double last(const std::string& scale, const std::string& field) const {
    double found = 0;
    for (const Json& row : means)
      if (row["scale"] == scale) found = row[field].get<double>();
    return found;
  }
  double first(const std::string& scale, const std::string& field) const {
    for (const Json& row : means)
      if (row["scale"] == scale) return row[field].get<double>();
    return 0;
  }
  double over_all_steps(const std::string& scale, const std::string& field) const {
    std::vector<double> numbers;
    for (const Json& row : means)
      if (row["scale"] == scale) numbers.push_back(row[field].get<double>());
    return mean(numbers);
  }
  /// Whether every run of a scale ends with a larger loss than every run of all others.
  bool is_worst(const std::string& scale) const {
    for (const NamedScale& other : trained_scales())
      if (other.name != scale && last(scale, "lowest loss") <= last(other.name, "highest loss"))
        return false;
    return true;
  }
};

TrainingTables train_all(const SmallLanguage& language, const Lab& lab) {
  TrainingTables tables;
  const std::vector<NamedScale> scales = trained_scales();
  Index done = 0;
  const auto all = static_cast<double>(short_training.steps * seeds * std::ssize(scales));
  for (const NamedScale& scale : scales) {
    std::vector<Run> runs;
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      Transformer model(small_model(scale.scale, lab.seed + seed));
      SmallTraining how = short_training;
      how.seed = lab.seed + seed;
      runs.push_back(train_small(model, language, how, lab.context,
                                 [&](Index) { lab.progress(static_cast<double>(++done) / all); }));
    }
    tables.add(scale.name, runs);
  }
  return tables;
}

LineChart chart_of(const char* field, const char* title, Axis::Scale scale) {
  const std::string name = field;
  return {.x = {.field = "step", .title = "step"},
          .y = {.field = field, .title = title, .scale = scale},
          .layers = {{.table = "means",
                      .mark = Layer::Mark::band,
                      .y = "lowest " + name,
                      .y2 = "highest " + name,
                      .series = "scale",
                      .label = "lowest to highest of 3 seeds"},
                     {.table = "means", .y = name, .series = "scale", .label = "mean"}}};
}

}  // namespace

std::vector<Figure> training_figures(const Lab& lab) {
  const SmallLanguage language(lab.seed);
  const TrainingTables tables = train_all(language, lab);
  LineChart losses = chart_of("loss", "loss, nats per token", Axis::Scale::linear);
  losses.layers.push_back(
      {.table = "floor", .mark = Layer::Mark::rule, .y = "loss", .label = "the best possible"});
  const Json floor =
      Json::array({{{"loss", language.best_loss(language.text(20000, lab.seed + 9))}}});
  const auto each = [&](const auto& value) {
    std::string text;
    for (const NamedScale& scale : trained_scales())
      text += (text.empty() ? "" : ", ") + scale.name + " " + short_text(value(scale.name));
    return text;
  };
  const auto last = [&](const char* field) {
    return each([&](const std::string& scale) { return tables.last(scale, field); });
  };
  const auto first = [&](const char* field) {
    return each([&](const std::string& scale) { return tables.first(scale, field); });
  };
  const std::string setting =
      "Two layers with one head of d = 128, the same texts and steps for every scale. ";
  return {
      {"training",
       tables.is_worst("none")
           ? "Without a scale the same model learns the least from the same texts, with every seed"
           : "The same model on the same texts, under four scales",
       setting + "Loss after " + std::to_string(short_training.steps) + " steps: " + last("loss") +
           ". With 1/d attention begins flat and can still learn, as softness has a gradient; "
           "saturation has none to leave it by. On a task as small as this, in f32, flat is no "
           "worse than 1/√d: what 1/d costs is precision, as the figures on bf16 and f16 show. log "
           "n is log₆₄ of the keys that a query sees, over "
           "√d.",
       {{"means", tables.means}, {"floor", floor}, {"runs", tables.runs}},
       spec_of(losses)},
      {"training-norm",
       "Without a scale the gradient is " +
           short_text(tables.over_all_steps("none", "gradient norm") /
                      tables.over_all_steps("1/√d", "gradient norm")) +
           " times as large as with 1/√d" + (tables.is_worst("none") ? ", and teaches less" : ""),
       setting + "Before clipping to 1. At the first step: " + first("gradient norm") + ".",
       {{"means", tables.means}},
       spec_of(chart_of("gradient norm", "norm of the gradient", Axis::Scale::log))},
      {"training-entropy",
       "Without a scale attention decides before it has learned: entropy " +
           short_text(tables.first("none", "entropy")) + " at the first step, " +
           short_text(tables.first("1/√d", "entropy")) + " with 1/√d",
       setting + "Mean entropy at the first step: " + first("entropy") +
           "; at the last: " + last("entropy") +
           ". Attention that begins undecided can learn where to look and then grow sharp.",
       {{"means", tables.means}},
       spec_of(chart_of("entropy", "mean entropy of a row, nats", Axis::Scale::linear))}};
}

}  // namespace rapt::lab
