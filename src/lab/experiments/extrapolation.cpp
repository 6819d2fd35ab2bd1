#include <cmath>

#include "base/indexed_vector.h"
#include "lab/charts/chart.h"
#include "lab/experiments/numbers.h"
#include "lab/experiments/small_training.h"
#include "lab/section_figures.h"

namespace rapt::lab {
using namespace detail;
namespace {

constexpr Index trained = 256, longest = 4096;
const SmallTraining training{.steps = 500, .items = 4, .tokens = trained};

ModelConfig position_model(ModelConfig::Positions positions, std::uint64_t seed) {
  ModelConfig config;
  config.vocab_size = SmallLanguage::vocabulary;
  config.hidden_size = 64;
  config.layers = 2;
  config.heads = 4;
  config.intermediate_size = 128;
  config.positions = positions;
  config.max_positions = longest;
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
  IndexedVector<double> sums(longest);
  for (const auto& text : texts) {
    const std::vector<double> losses = losses_of(model, text, lab.context);
    for (std::size_t t = 0; t < losses.size(); ++t)
      sums[t] += losses[t] / static_cast<double>(texts.size());
  }
  // Tokens from n / 2 on to n: what a text of length n adds to one of half the length.
  for (Index n = 64; n <= longest; n *= 2) {
    double sum = 0;
    for (Index t = n / 2; t < n; ++t) sum += sums[t];
    rows.push_back({{"positions", name},
                    {"tokens", n},
                    {"perplexity", std::exp(sum / static_cast<double>(n - n / 2))}});
  }
}

double perplexity_at(const Json& rows, const std::string& name, Index tokens) {
  for (const Json& row : rows)
    if (row["positions"] == name && row["tokens"] == tokens) return row["perplexity"].get<double>();
  return 0;
}

Json perplexities(const SmallLanguage& language,
                  const std::vector<std::vector<std::int32_t>>& texts, const Lab& lab) {
  const struct {
    const char* name;
    ModelConfig::Positions positions;
  } schemes[] = {{"learned", ModelConfig::Positions::learned},
                 {"sinusoidal", ModelConfig::Positions::sinusoidal},
                 {"RoPE", ModelConfig::Positions::rope},
                 {"ALiBi", ModelConfig::Positions::alibi}};
  Json rows = Json::array();
  Index done = 0;
  for (const auto& scheme : schemes) {
    Transformer model(position_model(scheme.positions, lab.seed));
    train_small(model, language, training, lab.context, [&](Index) {
      lab.progress(static_cast<double>(++done) / static_cast<double>(4 * training.steps));
    });
    add_perplexities(model, scheme.name, texts, lab, rows);
    if (scheme.positions != ModelConfig::Positions::rope) continue;
    constexpr double factor = static_cast<double>(longest) / trained;
    Transformer ntk = with_scaling(model, NtkRope{factor});
    add_perplexities(ntk, "RoPE with NTK", texts, lab, rows);
    Transformer yarn = with_scaling(model, YarnRope{.factor = factor, .trained_tokens = trained});
    add_perplexities(yarn, "RoPE with YaRN", texts, lab, rows);
  }
  return rows;
}

const char* const names[] = {"learned",       "sinusoidal",     "RoPE",
                             "RoPE with NTK", "RoPE with YaRN", "ALiBi"};

/// "A, B and C"
std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  return text;
}

/// Which schemes end near the best possible: at no more than half again its perplexity.
std::string finding(const Json& rows, double best) {
  std::vector<std::string> holding, failing;
  for (const std::string name : names)
    (perplexity_at(rows, name, longest) < 1.5 * best ? holding : failing)
        .push_back(name == "RoPE" ? "plain RoPE" : name);
  const std::string begin = "Trained on 256 tokens, read to 4,096: ";
  if (failing.empty()) return begin + "all schemes hold";
  if (holding.empty()) return begin + "no scheme holds";
  return begin + listed(holding) + (holding.size() == 1 ? " holds, " : " hold, ") +
         listed(failing) + (failing.size() == 1 ? " does not" : " do not");
}

}  // namespace

Figure extrapolation_figure(const Lab& lab) {
  const SmallLanguage language(lab.seed);
  std::vector<std::vector<std::int32_t>> texts;
  for (std::uint64_t i = 0; i < 4; ++i) texts.push_back(language.text(longest + 1, 1000 + i));
  const Json rows = perplexities(language, texts, lab);
  const double best = std::exp(language.best_loss(texts[0]));
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
  std::string ends;
  for (const std::string name : names)
    ends += (ends.empty() ? "" : "; ") + name + " " +
            short_text(perplexity_at(rows, name, trained)) + " and " +
            short_text(perplexity_at(rows, name, longest));
  return {
      "extrapolation",
      finding(rows, best),
      "Two layers trained on texts of 256 tokens, then texts of 4,096. Perplexity is the number "
      "of tokens among which the model still hesitates, here for those between half a length "
      "and that length. Up to 256 and up to 4,096: " +
          ends + "; the best possible is " + short_text(best) +
          ". Learned positions beyond 256 were never trained.",
      {{"rows", rows},
       {"best", Json::array({{{"perplexity", best}}})},
       {"edge", Json::array({{{"tokens", trained}}})}},
      spec_of(chart)};
}

}  // namespace rapt::lab
