#include <algorithm>
#include <cmath>
#include <cstring>

#include "lab/chart.h"
#include "lab/closed_forms.h"
#include "lab/experiment.h"
#include "lab/numbers.h"
#include "lab/small_training.h"
#include "rapt/model.h"

namespace rapt::lab {
namespace {

// The spread of scores at which the log n scale keeps the entropy to first order: sqrt(ln 512).
const double critical = std::sqrt(std::log(512.0));

Figure entropy_figure(const Lab& lab) {
  Json measured = Json::array(), theory = Json::array();
  constexpr Index dim = 64, queries = 256;
  Tensor q = normals({1, 1, queries, dim}, lab.seed);
  // Queries of one length, so that all rows have scores of the critical spread.
  const std::vector<double> lengths = row_lengths(q);
  const double wanted = critical * std::sqrt(static_cast<double>(dim));
  for (Index r = 0; r < queries; ++r)
    for (Index c = 0; c < dim; ++c)
      q.data()[r * dim + c] *= static_cast<float>(wanted / lengths[static_cast<std::size_t>(r)]);
  double flat[2] = {}, logarithmic[2] = {};
  for (Index n = 128; n <= 16384; n *= 2) {
    const Tensor k = normals({1, 1, n, dim}, lab.seed + 1), v({1, 1, n, 1});
    for (const bool log_n : {false, true}) {
      Attention how;
      how.scale = log_n ? Scale::log_n(512) : Scale::inverse_sqrt_dim();
      how.stats = true;
      const Attended attended = attend(q.view(), k.view(), v.view(), how, lab.context);
      const double entropy = mean(numbers_of(attended.stats->entropy));
      const char* name = log_n ? "log₅₁₂(n)/√d" : "1/√d";
      const double sigma =
          critical * (log_n ? std::log(static_cast<double>(n)) / std::log(512.0) : 1.0);
      measured.push_back({{"n", n}, {"scale", name}, {"entropy", entropy}});
      theory.push_back({{"n", n}, {"scale", name}, {"entropy", softmax_theory(n, sigma).entropy}});
      double* ends = log_n ? logarithmic : flat;
      if (n == 512) ends[0] = entropy;
      if (n == 16384) ends[1] = entropy;
    }
  }
  const LineChart chart{.x = {.field = "n", .title = "keys, n", .scale = Axis::Scale::log},
                        .y = {.field = "entropy", .title = "mean entropy, nats"},
                        .layers = {{.table = "measured",
                                    .mark = Layer::Mark::points,
                                    .y = "entropy",
                                    .series = "scale",
                                    .label = "measured"},
                                   {.table = "theory",
                                    .mark = Layer::Mark::dashes,
                                    .y = "entropy",
                                    .series = "scale",
                                    .label = "theory"}}};
  return {"entropy",
          "Attention thins out as inputs grow; a scale with log n holds it together",
          "From 512 to 16,384 keys the entropy rises by " + short_text(flat[1] - flat[0]) +
              " nats with 1/√d and by " + short_text(logarithmic[1] - logarithmic[0]) +
              " with log n. Scores have a deviation of " + short_text(critical) +
              ", where the correction is exact to first order; for scores of deviation 1 it would "
              "hardly matter.",
          {{"measured", measured}, {"theory", theory}},
          spec_of(chart)};
}

constexpr Index trained = 256, longest = 4096;

ModelConfig position_model(ModelConfig::Positions positions, std::uint64_t seed) {
  ModelConfig config;
  config.vocabulary = SmallLanguage::vocabulary;
  config.width = 64;
  config.layers = 2;
  config.heads = 2;
  config.ffn = 128;
  config.positions = positions;
  config.max_tokens = longest;
  config.seed = seed;
  return config;
}

/// The same weights with other angles.
Transformer with_scaling(const Transformer& model, const RopeScaling& scaling) {
  ModelConfig config = model.config();
  config.rope_scaling = scaling;
  std::size_t next = 0;
  return Transformer(config, [&](Parameter& parameter, const Shape&) {
    parameter.value = model.parameters()[next++].value.clone();
  });
}

void add_perplexities(Transformer& model, const std::string& name,
                      const std::vector<std::vector<std::int32_t>>& texts, const Lab& lab,
                      Json& rows) {
  std::vector<double> sums(static_cast<std::size_t>(longest));
  for (const auto& text : texts) {
    const std::vector<double> losses = losses_of(model, text, lab.context);
    for (std::size_t t = 0; t < losses.size(); ++t)
      sums[t] += losses[t] / static_cast<double>(texts.size());
  }
  // Tokens from n / 2 on to n: what a text of length n adds to one of half the length.
  for (Index n = 32; n <= longest; n *= 2) {
    double sum = 0;
    for (Index t = n / 2; t < n; ++t) sum += sums[static_cast<std::size_t>(t)];
    rows.push_back({{"positions", name},
                    {"tokens", n},
                    {"perplexity", std::exp(sum / static_cast<double>(n - n / 2))}});
  }
}

double perplexity_at(const Json& rows, const char* name, Index tokens) {
  for (const Json& row : rows)
    if (row["positions"] == name && row["tokens"] == tokens) return row["perplexity"].get<double>();
  return 0;
}

Figure extrapolation_figure(const Lab& lab) {
  const SmallLanguage language(lab.seed);
  std::vector<std::vector<std::int32_t>> texts;
  for (std::uint64_t i = 0; i < 2; ++i) texts.push_back(language.text(longest + 1, 1000 + i));
  const struct {
    const char* name;
    ModelConfig::Positions positions;
  } schemes[] = {{"learned", ModelConfig::Positions::learned},
                 {"sinusoidal", ModelConfig::Positions::sinusoidal},
                 {"RoPE", ModelConfig::Positions::rope},
                 {"ALiBi", ModelConfig::Positions::alibi}};
  Json rows = Json::array();
  Index done = 0;
  const SmallTraining how{.steps = 150, .items = 4, .tokens = trained};
  for (const auto& scheme : schemes) {
    Transformer model(position_model(scheme.positions, lab.seed));
    train_small(model, language, how, lab.context, [&](Index) {
      lab.progress(0.05 + 0.8 * static_cast<double>(++done) / static_cast<double>(4 * how.steps));
    });
    add_perplexities(model, scheme.name, texts, lab, rows);
    if (scheme.positions != ModelConfig::Positions::rope) continue;
    constexpr double factor = static_cast<double>(longest) / trained;
    Transformer ntk = with_scaling(model, NtkRope{factor});
    add_perplexities(ntk, "RoPE, NTK", texts, lab, rows);
    Transformer yarn = with_scaling(model, YarnRope{.factor = factor, .trained_tokens = trained});
    add_perplexities(yarn, "RoPE, YaRN", texts, lab, rows);
  }
  Json best = Json::array(), edge = Json::array();
  best.push_back(
      {{"perplexity", std::exp(language.best_loss(texts[0]))}, {"meaning", "the language itself"}});
  const LineChart chart{
      .x = {.field = "tokens", .title = "position in the text, up to", .scale = Axis::Scale::log},
      .y = {.field = "perplexity", .title = "perplexity", .scale = Axis::Scale::log},
      .layers = {{.table = "rows", .y = "perplexity", .series = "positions"},
                 {.table = "best",
                  .mark = Layer::Mark::rule,
                  .y = "perplexity",
                  .label = "the best possible"}}};
  const auto at = [&](const char* name) { return short_text(perplexity_at(rows, name, longest)); };
  return {
      "extrapolation",
      "Trained on 256 tokens, read to 4,096: not every scheme goes on",
      "Two layers trained on texts of 256 tokens, then texts of 4,096. Perplexity of the tokens "
      "between half a length and that length; at the end: learned " +
          at("learned") + ", sinusoidal " + at("sinusoidal") + ", RoPE " + at("RoPE") +
          ", with NTK " + at("RoPE, NTK") + ", with YaRN " + at("RoPE, YaRN") + ", ALiBi " +
          at("ALiBi") + ". Learned positions beyond 256 were never trained at all.",
      {{"rows", rows}, {"best", best}},
      spec_of(chart)};
}

/// How much the last output moves with each input, by the gradient.
std::vector<double> influence(Index layers, Index window, Index tokens, const Lab& lab) {
  ModelConfig config;
  config.vocabulary = tokens;  // each token has a row of the embedding for itself
  config.width = 32;
  config.layers = layers;
  config.heads = 2;
  config.ffn = 64;
  config.tied = false;
  config.patterns = {"causal & window(" + std::to_string(window) + ", 0)"};
  config.seed = lab.seed;
  Transformer model(config);
  std::vector<std::int32_t> ids;
  for (Index t = 0; t < tokens; ++t) ids.push_back(static_cast<std::int32_t>(t));
  Tape tape(Tape::Mode::train, lab.context);
  const Variable out = model.forward(tape, Tokens::one(ids));
  Tensor gradient(out.shape());
  const Tensor direction = normals({config.width}, lab.seed + 3);
  std::memcpy(gradient.data() + (tokens - 1) * config.width, direction.data(),
              static_cast<std::size_t>(config.width) * sizeof(float));
  tape.backward(out, std::move(gradient));
  return row_lengths(model.parameter("embedding.weight").gradient);
}

Figure reach_figure(const Lab& lab) {
  constexpr Index window = 16, tokens = 160;
  Json rows = Json::array(), edges = Json::array();
  std::string found;
  for (const Index layers : {1, 2, 4, 8}) {
    const std::vector<double> lengths = influence(layers, window, tokens, lab);
    Index farthest = 0;
    for (Index t = 0; t < tokens; ++t) {
      const Index distance = tokens - 1 - t;
      const double length = lengths[static_cast<std::size_t>(t)];
      if (length > 0) {
        farthest = std::max(farthest, distance);
        rows.push_back(
            {{"layers", std::to_string(layers)}, {"distance", distance}, {"gradient", length}});
      }
    }
    found += (found.empty() ? "" : ", ") + std::to_string(layers) + ": " + std::to_string(farthest);
  }
  const LineChart chart{
      .x = {.field = "distance", .title = "tokens back"},
      .y = {.field = "gradient", .title = "|∂ output / ∂ input|", .scale = Axis::Scale::log},
      .layers = {{.table = "rows", .y = "gradient", .series = "layers"}}};
  return {
      "reach",
      "Windows add up: each layer looks one window further back",
      "A window of 16 tokens back in every layer. The gradient of the last output reaches exactly "
      "layers × 16 tokens (farthest token by layers: " +
          found + "), but its size falls with the distance: what is in reach is not what is heard.",
      {{"rows", rows}},
      spec_of(chart)};
}

/// Largest difference between the outputs of permuted tokens and the permuted outputs.
double broken_by(ModelConfig::Positions positions, const Lab& lab) {
  ModelConfig config = position_model(positions, lab.seed);
  config.kind = ModelConfig::Kind::encoder;
  config.max_tokens = 64;
  if (positions == ModelConfig::Positions::t5) config.norm = ModelConfig::Norm::rms;
  config.patterns = {"full"};
  Transformer model(config);
  constexpr Index tokens = 32;
  if (positions == ModelConfig::Positions::t5)  // its table begins with small numbers
    for (Parameter& parameter : model.parameters())
      if (parameter.name.find("relative") != std::string::npos)
        for (Index i = 0; i < parameter.value.elements(); ++i)
          parameter.value.data()[i] = static_cast<float>(i % 7) * 0.3f;
  std::vector<std::int32_t> ids, turned;
  for (Index t = 0; t < tokens; ++t) ids.push_back(static_cast<std::int32_t>(t));
  const auto place = [](Index t) { return (t * 5 + 3) % tokens; };
  for (Index t = 0; t < tokens; ++t) turned.push_back(ids[static_cast<std::size_t>(place(t))]);
  Tape tape(Tape::Mode::forward, lab.context);
  const Tensor a = Tape::take(model.forward(tape, Tokens::one(ids)));
  const Tensor b = Tape::take(model.forward(tape, Tokens::one(turned)));
  double largest = 0;
  for (Index t = 0; t < tokens; ++t)
    for (Index c = 0; c < config.width; ++c)
      largest =
          std::max(largest, std::abs(static_cast<double>(a.data()[place(t) * config.width + c]) -
                                     static_cast<double>(b.data()[t * config.width + c])));
  return largest;
}

Figure permutation_figure(const Lab& lab) {
  Json rows = Json::array();
  const struct {
    const char* name;
    ModelConfig::Positions positions;
  } schemes[] = {{"none", ModelConfig::Positions::none},
                 {"sinusoidal", ModelConfig::Positions::sinusoidal},
                 {"learned", ModelConfig::Positions::learned},
                 {"RoPE", ModelConfig::Positions::rope},
                 {"ALiBi", ModelConfig::Positions::alibi},
                 {"T5", ModelConfig::Positions::t5}};
  for (const auto& scheme : schemes)
    rows.push_back({{"positions", scheme.name},
                    {"difference", std::max(1e-8, broken_by(scheme.positions, lab))}});
  const BarChart chart{
      .table = "rows",
      .x = {.field = "positions", .title = "positions", .scale = Axis::Scale::band},
      .y = {.field = "difference",
            .title = "largest difference",
            .scale = Axis::Scale::log,
            .range = {1e-8, 10}}};
  return {"permutation",
          "Without positions attention does not know the order of its tokens",
          "An encoder reads 32 tokens, and the same tokens in another order. Without positions the "
          "outputs are the same rows in that other order, up to rounding (" +
              short_text(rows[0]["difference"].get<double>()) +
              "); every positional scheme breaks that, which is what it is for.",
          {{"rows", rows}},
          spec_of(chart)};
}

}  // namespace

Section long_inputs(const Lab& lab) {
  Section section{.name = "length",
                  .title = "What happens with long inputs?",
                  .text =
                      "More keys share the same probability, windows limit what a layer can reach, "
                      "and positions appear that no training text had. <b>Each has its own "
                      "remedy</b>: a scale that grows with log n, more layers, and positions that "
                      "depend on distance alone."};
  section.figures.push_back(entropy_figure(lab));
  lab.progress(0.05);
  section.figures.push_back(extrapolation_figure(lab));
  lab.progress(0.9);
  section.figures.push_back(reach_figure(lab));
  section.figures.push_back(permutation_figure(lab));
  lab.progress(1);
  return section;
}

}  // namespace rapt::lab
