#include "rapt/models/transformer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <sstream>

#include "support/models.h"
#include "support/network.h"
#include "support/refused.h"
#include "support/truth/bound.h"

namespace rapt::test {
namespace {

/// Numbers of a config with other numbers of layers: all that a layer of each stack adds, without
/// drawing 109 million of them.
struct LayerCounts {
  Index rest, encoder_layer, layer;
};

LayerCounts layer_counts(ModelConfig config) {
  const bool both = config.kind == ModelConfig::Kind::encoder_decoder;
  const auto count = [&](Index encoder_layers, Index layers) {
    config.encoder_layers = both ? encoder_layers : 0;
    config.layers = layers;
    return Transformer(config).count();
  };
  const Index least = count(1, 1), encoder_layer = count(2, 1) - least;
  const Index layer = count(1, 2) - least;
  return {least - encoder_layer - layer, encoder_layer, layer};
}

TEST(Model, CountsOfTheWorkedExample) {
  const LayerCounts counts = layer_counts(worked_example());
  EXPECT_EQ(counts.rest, 0);
  EXPECT_EQ(counts.encoder_layer, 4203264);
  EXPECT_EQ(counts.layer, 7354368);
  EXPECT_EQ(12 * counts.encoder_layer + 8 * counts.layer, 109274112);
  ModelConfig before = worked_example();
  before.norm_position = ModelConfig::NormPosition::pre;
  before.encoder_layers = before.layers = 1;
  const Index final_norms = Transformer(before).count() - counts.encoder_layer - counts.layer;
  EXPECT_EQ(109274112 + final_norms, 109278208);
}

TEST(SlowModel, HasAllNumbersOfTheWorkedExample) {
  const Transformer model(worked_example());
  EXPECT_EQ(model.count(), 109274112);
  Index weights = 0, biases = 0, norms = 0;
  for (const Parameter& p : model.parameters()) {
    const bool norm = p.name.find("norm") != std::string::npos;
    (p.decays ? weights : norm ? norms : biases) += p.value.elements();
  }
  EXPECT_EQ(weights, 109051904);
  EXPECT_EQ(biases, 123904);
  EXPECT_EQ(norms, 98304);
}

TEST(Model, CountsOfPublishedModels) {
  ModelConfig base = worked_example();
  base.hidden_size = 512;
  base.heads = 8;
  base.head_dim = {};
  base.intermediate_size = 2048;
  const LayerCounts vaswani = layer_counts(base);
  EXPECT_EQ(6 * (vaswani.encoder_layer + vaswani.layer), 44138496);

  ModelConfig gpt2;
  gpt2.hidden_size = 768;
  gpt2.heads = 12;
  gpt2.positions = ModelConfig::Positions::learned;
  gpt2.layers = 1;
  gpt2.vocab_size = 1;
  const Index least = Transformer(gpt2).count();
  gpt2.layers = 2;
  const Index layer = Transformer(gpt2).count() - least;
  EXPECT_EQ(least + 11 * layer + 50256 * 768, 124439808);
}

TEST(Model, ParametersHaveOneOrderAndEveryNameOnce) {
  for (const ModelCase& c : model_cases()) {
    const Transformer model(c.config);
    std::vector<std::string> names;
    for (const Parameter& p : model.parameters()) names.push_back(p.name);
    std::vector<std::string> sorted = names;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(std::unique(sorted.begin(), sorted.end()), sorted.end()) << c.name;
    const Transformer again(c.config);
    for (std::size_t i = 0; i < names.size(); ++i)
      EXPECT_SAME_BITS(c.name + ' ' + names[i], again.parameters()[i].value.numbers(),
                       model.parameters()[i].value.numbers());
  }
}

TEST(Model, FirstWeightsHaveTheDeviationThatIsDocumented) {
  ModelConfig config = tiny_config();
  config.hidden_size = 256;
  config.layers = 4;
  config.gated = true;
  Transformer model(config);
  const auto deviation = [&](const std::string& name) {
    double sum = 0;
    const Tensor& value = model.parameter(name).value;
    for (const double x : widened(value)) sum += x * x;
    return std::sqrt(sum / static_cast<double>(value.elements()));
  };
  // The deviation of n normal numbers is off by 1/sqrt(2n): 0.2 % of 256 * 256 at one sigma.
  EXPECT_NEAR(deviation("decoder.layers.1.attention.qkv.weight") * std::sqrt(256), 1, 0.01);
  EXPECT_NEAR(deviation("decoder.layers.1.attention.out.weight") * std::sqrt(256 * 8), 1, 0.01);
  EXPECT_NEAR(deviation("decoder.layers.0.ffn.down.weight") * std::sqrt(24 * 8), 1, 0.04);
  EXPECT_NEAR(deviation("embedding.weight") * std::sqrt(256), 1, 0.04);
}

// Gradients ---------------------------------------------------------------------------------------

/// A step for each parameter: half along its gradient, so that the derivative is not lost in the
/// rounding of the loss, and half anywhere.
Tensor direction_of(const Tensor& gradient, std::uint64_t seed) {
  Tensor random = random_parameter("direction", gradient.shape(), seed).value;
  double g = 0, r = 0;
  for (const double x : widened(gradient)) g += x * x;
  for (const double x : widened(random)) r += x * x;
  for (std::size_t i = 0; i < random.numbers().size(); ++i)
    random.numbers()[i] = static_cast<float>(
        (static_cast<double>(random.numbers()[i]) / std::sqrt(r) +
         (g == 0 ? 0 : static_cast<double>(gradient.numbers()[i]) / std::sqrt(g))) /
        std::numbers::sqrt2);
  return random;
}

/// Slopes of the loss along steps of one parameter, by differences of four points.
struct Slopes {
  double by_gradient = 0, by_differences = 0;
  double allowed = 0;
};

Slopes slopes_of(Transformer& model, const Sample& sample, std::size_t index,
                 const Tensor& gradient) {
  Parameter& parameter = model.parameters()[index];
  const Tensor step = direction_of(gradient, 100 + index), middle = parameter.value.clone();
  // ReLU has kinks, and hashed tokens change their buckets: what is left of them in a small step.
  const double h = model.config().activation == Activation::relu ? 2e-4 : 1e-3;
  double slope = 0, size = 0;
  const auto at = [&](double times) {
    for (std::size_t i = 0; i < middle.numbers().size(); ++i)
      parameter.value.numbers()[i] =
          static_cast<float>(static_cast<double>(middle.numbers()[i]) +
                             times * h * static_cast<double>(step.numbers()[i]));
    return loss_of(model, sample);
  };
  const double near = at(1) - at(-1), far = at(2) - at(-2), loss = at(0);
  for (std::size_t i = 0; i < middle.numbers().size(); ++i) {
    slope += static_cast<double>(gradient.numbers()[i]) * static_cast<double>(step.numbers()[i]);
    size += std::pow(static_cast<double>(gradient.numbers()[i]), 2);
  }
  // The loss is a mean of many numbers and off by less than a rounding: 0.76 of one in 2,900 slopes
  // of 40 models. What the differences leave of the fourth order is far below the second term.
  return {slope, (8 * near - far) / (12 * h), 2 * u32 * loss / h + 1e-4 * std::sqrt(size)};
}

std::string wrong_gradients(const ModelCase& c, const std::vector<Index>& lengths) {
  Transformer model = noisy_model(c.config);
  const Sample sample = sample_of(c.config, lengths);
  const ModelAnswer answer = answer_of(model, sample);
  std::ostringstream text;
  if (std::abs(loss_of(model, sample) - answer.loss) != 0) text << "the loss changed; ";
  for (std::size_t i = 0; i < answer.gradients.size(); ++i) {
    const Slopes s = slopes_of(model, sample, i, answer.gradients[i]);
    if (std::abs(s.by_gradient - s.by_differences) <= s.allowed) continue;
    text << model.parameters()[i].name << ": " << s.by_gradient << " by its gradient, "
         << s.by_differences << " by differences, allowed " << s.allowed << "; ";
  }
  return text.str();
}

TEST(Model, GradientsAreTheSlopesOfTheLoss) {
  for (const ModelCase& c : model_cases())
    for (const std::vector<Index>& lengths : {std::vector<Index>{16, 16}, {7, 16, 3}})
      EXPECT_SILENT(wrong_gradients(c, lengths)) << c.name << ", " << lengths.size();
}

TEST(Model, EveryParameterGetsAGradient) {
  for (const ModelCase& c : model_cases()) {
    Transformer model = noisy_model(c.config);
    const ModelAnswer answer = answer_of(model, sample_of(c.config, {16, 16}));
    for (std::size_t i = 0; i < answer.gradients.size(); ++i)
      EXPECT_GT(largest(answer.gradients[i]), 0) << c.name << ' ' << model.parameters()[i].name;
  }
}

// Same bits ---------------------------------------------------------------------------------------

void expect_same_answers(const std::string& what, const ModelAnswer& got, const ModelAnswer& want) {
  EXPECT_EQ(got.loss, want.loss) << what;
  EXPECT_SAME_BITS(what + ": hidden", got.hidden.numbers(), want.hidden.numbers());
  ASSERT_EQ(got.gradients.size(), want.gradients.size());
  for (std::size_t i = 0; i < want.gradients.size(); ++i)
    EXPECT_SAME_BITS(what + ": gradient " + std::to_string(i), got.gradients[i].numbers(),
                     want.gradients[i].numbers());
}

TEST(Model, RecomputedLayersGiveTheSameBits) {
  for (ModelCase c : model_cases()) {
    if (c.config.reversible) continue;
    for (const std::vector<Index>& lengths : {std::vector<Index>{16, 16}, {7, 16, 3}}) {
      const Sample sample = sample_of(c.config, lengths);
      c.config.recompute = false;
      Transformer plain = noisy_model(c.config);
      c.config.recompute = true;
      Transformer recomputed = noisy_model(c.config);
      expect_same_answers(c.name, answer_of(recomputed, sample), answer_of(plain, sample));
    }
  }
}

TEST(Model, SameBitsForAnyNumberOfThreads) {
  for (const ModelCase& c : model_cases()) {
    Transformer model = noisy_model(c.config);
    const Sample sample = sample_of(c.config, {40, 9, 33, 40});
    const ModelAnswer want = answer_of(model, sample, Context(1));
    for (const Index threads : {2, 3, 7})
      expect_same_answers(c.name + ", " + std::to_string(threads) + " threads",
                          answer_of(model, sample, Context(threads)), want);
  }
}

TEST(Model, StatisticsComeOnceHoweverOftenALayerRuns) {
  for (const bool recompute : {false, true}) {
    ModelConfig config = tiny_config();
    config.recompute = recompute;
    Transformer model = noisy_model(config);
    std::vector<LayerStats> stats;
    Tape tape(Tape::Mode::train);
    const Sample sample = sample_of(config, {9, 9});
    const Variable hidden = model.forward(tape, sample.tokens, {.stats = &stats});
    tape.backward(model.loss(tape, hidden, sample.targets).loss);
    EXPECT_EQ(stats.size(), 2u) << recompute;
  }
}

TEST(Model, RefusesConfigsThatMakeNoSense) {
  const auto refused = [](const auto& change, const std::vector<std::string>& words) {
    ModelConfig config = tiny_config();
    change(config);
    expect_refused([&] { config.check(); }, words);
  };
  refused(
      [](ModelConfig& c) {
        c.patterns = {causal(), Pattern::parse("causal & lsh(16)")};
      },
      {"patterns", "lsh(16, 1, 0, 1, 0)", "shared_query_key"});
  refused([](ModelConfig& c) { c.patterns = {}; }, {"patterns", "empty"});
  refused([](ModelConfig& c) { c.heads = 3; }, {"hidden_size 16", "3 heads"});
  refused([](ModelConfig& c) { c.kv_heads = 3; }, {"kv_heads is 3", "divisor"});
  refused([](ModelConfig& c) { c.head_dim = 7; }, {"head_dim is 7", "even"});
  refused([](ModelConfig& c) { c.encoder_layers = 1; }, {"encoder_layers", "encoder_decoder"});
  refused([](ModelConfig& c) { c.positions = ModelConfig::Positions::axial; }, {"axial_rows"});
  refused([](ModelConfig& c) { c.reversible = true; }, {"tied_embeddings"});
  refused([](ModelConfig& c) { c.dropout = 1; }, {"dropout is 1"});
  ModelConfig separate = tiny_config();
  separate.patterns = {Pattern::parse("causal & lsh(16, separate)")};
  separate.check();
}

TEST(Model, RefusesTokensThatDoNotFit) {
  ModelConfig config = tiny_config();
  config.positions = ModelConfig::Positions::learned;
  config.max_positions = 4;
  Transformer model(config);
  Tape tape;
  expect_refused([&] { model.forward(tape, {{1, 2, 3, 1, 2}, {5}}); }, {"position 4", "4 tokens"});
  expect_refused([&] { model.forward(tape, {{1, 2, 3}, {2}}); }, {"3 ids", "2 tokens"});
  expect_refused([&] { model.forward(tape, {{1, 2}, {2, 0}}); }, {"0 tokens"});
  expect_refused([&] { model.forward(tape, {}); }, {"no sequences"});
  expect_refused([&] { model.forward(tape, {{1, 13}, {2}}); }, {"13"});
  expect_refused([&] { model.forward(tape, {{1}, {1}}, Tokens::one({1})); }, {"encoder"});
  expect_refused([&] { model.parameter("head.weight"); }, {"head.weight"});
}

}  // namespace
}  // namespace rapt::test
