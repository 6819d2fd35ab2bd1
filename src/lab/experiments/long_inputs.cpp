#include <algorithm>
#include <cmath>

#include "base/indexed_vector.h"
#include "lab/charts/chart.h"
#include "lab/experiments/numbers.h"
#include "lab/experiments/softmax_theory.h"
#include "lab/section_figures.h"
#include "rapt/models/transformer.h"

namespace rapt::lab {
using namespace detail;
namespace {

// The spread of scores at which the log n scale keeps the entropy to first order: sqrt(ln 512).
const double critical = std::sqrt(std::log(512.0));

/// How much the last output moves with each input, by the gradient.
std::vector<double> influence(Index layers, Index window, Index tokens, const Lab& lab) {
  ModelConfig config;
  config.vocab_size = tokens;  // each token has a row of the embedding for itself
  config.hidden_size = 32;
  config.layers = layers;
  config.heads = 2;
  config.intermediate_size = 64;
  config.tied_embeddings = false;
  config.patterns = {causal() & rapt::window(window, 0)};
  config.seed = lab.seed;
  Transformer model(config);
  std::vector<std::int32_t> ids;
  for (Index t = 0; t < tokens; ++t) ids.push_back(static_cast<std::int32_t>(t));
  Tape tape(Tape::Mode::train, lab.context);
  const Variable out = model.forward(tape, Tokens::one(ids));
  Tensor gradient(out.shape());
  const Tensor direction = normals({config.hidden_size}, lab.seed + 3);
  std::copy_n(direction.data(), config.hidden_size,
              gradient.data() + (tokens - 1) * config.hidden_size);
  tape.backward(out, std::move(gradient));
  return row_lengths(model.parameter("embedding.weight").gradient);
}

/// Largest difference between the outputs of permuted tokens and the permuted outputs.
double broken_by(ModelConfig::Positions positions, const Lab& lab) {
  ModelConfig config;
  config.vocab_size = 32;
  config.hidden_size = 64;
  config.layers = 2;
  config.heads = 2;
  config.intermediate_size = 128;
  config.seed = lab.seed;
  config.positions = positions;
  config.kind = ModelConfig::Kind::encoder;
  config.max_positions = 64;
  if (positions == ModelConfig::Positions::t5) config.norm = ModelConfig::Norm::rms;
  config.patterns = {full()};
  Transformer model(config);
  constexpr Index tokens = 32;
  if (positions == ModelConfig::Positions::t5)  // its table begins with small numbers
    for (Parameter& parameter : model.parameters())
      if (parameter.name.find("relative") != std::string::npos)
        for (Index i = 0; i < parameter.value.elements(); ++i)
          parameter.value.data()[i] = static_cast<float>(i % 7) * 0.3f;
  IndexedVector<std::int32_t> ids, turned;
  for (Index t = 0; t < tokens; ++t) ids.push_back(static_cast<std::int32_t>(t));
  const auto place = [](Index t) { return (t * 5 + 3) % tokens; };
  for (Index t = 0; t < tokens; ++t) turned.push_back(ids[place(t)]);
  Tape tape(Tape::Mode::forward, lab.context);
  const Tensor a = Tape::release(model.forward(tape, Tokens::one(ids)));
  const Tensor b = Tape::release(model.forward(tape, Tokens::one(turned)));
  double largest = 0;
  for (Index t = 0; t < tokens; ++t)
    for (Index c = 0; c < config.hidden_size; ++c)
      largest = std::max(largest,
                         std::abs(static_cast<double>(a.data()[place(t) * config.hidden_size + c]) -
                                  static_cast<double>(b.data()[t * config.hidden_size + c])));
  return largest;
}

}  // namespace

Figure length_entropy_figure(const Lab& lab) {
  Json measured = Json::array(), theory = Json::array();
  constexpr Index dim = 64, queries = 256;
  Tensor q = normals({1, 1, queries, dim}, lab.seed);
  // Queries of one length, so that all rows have scores of the critical spread.
  const IndexedVector<double> lengths = row_lengths(q);
  const double wanted = critical * std::sqrt(static_cast<double>(dim));
  for (Index r = 0; r < queries; ++r)
    for (Index c = 0; c < dim; ++c)
      q.data()[r * dim + c] *= static_cast<float>(wanted / lengths[r]);
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

Figure reach_figure(const Lab& lab) {
  constexpr Index window = 16, tokens = 160;
  Json rows = Json::array(), edges = Json::array();
  std::string found;
  for (const Index layers : {1, 2, 4, 8}) {
    const IndexedVector<double> lengths = influence(layers, window, tokens, lab);
    Index farthest = 0;
    for (Index t = 0; t < tokens; ++t) {
      const Index distance = tokens - 1 - t;
      const double length = lengths[t];
      if (length > 0) {
        farthest = std::max(farthest, distance);
        rows.push_back({{"layers", std::to_string(layers) + (layers == 1 ? " layer" : " layers")},
                        {"distance", distance},
                        {"gradient", length}});
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

Section long_inputs(const Lab& lab) {
  Section section{.name = "length",
                  .title = "What happens with long inputs?",
                  .text =
                      "More keys share the same probability, windows limit what a layer can reach, "
                      "and positions appear that no training text had. <b>Each has its own "
                      "remedy</b>: a scale that grows with log n, more layers, and positions "
                      "without a limit."};
  section.figures = {length_entropy_figure(lab), extrapolation_figure(lab.part(0.05, 0.95)),
                     reach_figure(lab), permutation_figure(lab)};
  section.takeaway =
      "Longer inputs thin attention out, which log n corrects where scores are sharp. They bring "
      "positions that training never showed, and a scheme has to be made for that, as ALiBi and "
      "YaRN are. And a window reaches one window further per layer, ever more faintly.";
  lab.progress(1);
  return section;
}

}  // namespace rapt::lab
