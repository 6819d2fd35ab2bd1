#include <cmath>

#include "lab/chart.h"
#include "lab/numbers.h"
#include "lab/parts.h"
#include "lab/small_training.h"

namespace rapt::lab {
namespace {

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

}  // namespace

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
      lab.progress(static_cast<double>(++done) / static_cast<double>(4 * how.steps));
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
  edge.push_back({{"tokens", trained}});
  const LineChart chart{
      .x = {.field = "tokens", .title = "position in the text, up to", .scale = Axis::Scale::log},
      .y = {.field = "perplexity", .title = "perplexity", .scale = Axis::Scale::log},
      .layers = {{.table = "rows", .y = "perplexity", .series = "positions"},
                 {.table = "best",
                  .mark = Layer::Mark::rule,
                  .y = "perplexity",
                  .label = "the best possible"},
                 {.table = "edge",
                  .mark = Layer::Mark::upright,
                  .y = "",
                  .label = "length of the training texts"}}};
  const auto at = [&](const char* name) { return short_text(perplexity_at(rows, name, longest)); };
  return {
      "extrapolation",
      "Trained on 256 tokens, read to 4,096: not every scheme goes on",
      "Two layers trained on texts of 256 tokens, then texts of 4,096. Perplexity of the tokens "
      "between half a length and that length; at the end: learned " +
          at("learned") + ", sinusoidal " + at("sinusoidal") + ", RoPE " + at("RoPE") +
          ", with NTK " + at("RoPE, NTK") + ", with YaRN " + at("RoPE, YaRN") + ", ALiBi " +
          at("ALiBi") + ". Learned positions beyond 256 were never trained at all.",
      {{"rows", rows}, {"best", best}, {"edge", edge}},
      spec_of(chart)};
}

}  // namespace rapt::lab
