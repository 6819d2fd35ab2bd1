#include "lab/experiments/small_training.h"

#include <algorithm>
#include <cmath>

#include "base/indexed_vector.h"
#include "base/random.h"
#include "train/optimizer.h"

namespace rapt::lab {
using namespace detail;

SmallLanguage::SmallLanguage(std::uint64_t seed) : seed_(seed) {}

std::int32_t SmallLanguage::successor(int table, std::int32_t token, Index choice) const {
  return static_cast<std::int32_t>(
      random_below(random_bits(seed_, {table, token, choice}), vocabulary));
}

std::vector<std::int32_t> SmallLanguage::text(Index tokens, std::uint64_t seed) const {
  RandomStream random(random_bits(seed, {7}));
  std::vector<std::int32_t> made = {static_cast<std::int32_t>(random.below(vocabulary)),
                                    static_cast<std::int32_t>(random.below(vocabulary))};
  while (std::ssize(made) < tokens) {
    const Index choice = random.below(2 * successors);
    const bool last = choice < successors;
    made.push_back(
        successor(last ? 0 : 1, last ? made.back() : made[made.size() - 2], choice % successors));
  }
  made.resize(to_size(tokens));
  return made;
}

double SmallLanguage::probability(std::int32_t before, std::int32_t last, std::int32_t next) const {
  double sum = 0;
  for (Index choice = 0; choice < successors; ++choice) {
    sum += successor(0, last, choice) == next ? 1 : 0;
    sum += successor(1, before, choice) == next ? 1 : 0;
  }
  return sum / static_cast<double>(2 * successors);
}

double SmallLanguage::best_loss(std::span<const std::int32_t> text) const {
  double sum = 0;
  for (std::size_t i = 2; i < text.size(); ++i)
    sum -= std::log(probability(text[i - 2], text[i - 1], text[i]));
  return sum / static_cast<double>(text.size() - 2);
}

namespace {

struct Batch {
  Tokens tokens;
  std::vector<std::int32_t> targets;
};

Batch batch_of(const SmallLanguage& language, const SmallTraining& how, Index step) {
  Batch batch;
  for (Index item = 0; item < how.items; ++item) {
    const std::vector<std::int32_t> text =
        language.text(how.tokens + 1, random_bits(how.seed, {step, item}));
    batch.tokens.ids.insert(batch.tokens.ids.end(), text.begin(), text.end() - 1);
    batch.targets.insert(batch.targets.end(), text.begin() + 1, text.end());
    batch.tokens.lengths.push_back(how.tokens);
  }
  return batch;
}

}  // namespace

std::vector<TrainingStep> train_small(Transformer& model, const SmallLanguage& language,
                                      const SmallTraining& how, const Context& context,
                                      const std::function<void(Index step)>& tell) {
  std::vector<Parameter*> parameters;
  for (Parameter& parameter : model.parameters()) parameters.push_back(&parameter);
  Optimizer optimizer(parameters, {});
  std::vector<TrainingStep> seen;
  for (Index step = 0; step < how.steps; ++step) {
    const Batch batch = batch_of(language, how, step);
    const bool watched = step % how.watch_every == 0 || step + 1 == how.steps;
    std::vector<LayerStats> stats;
    PassOptions options;
    if (watched) options.stats = &stats;
    Tape tape(Tape::Mode::train, context);
    const TokenLoss loss =
        model.loss(tape, model.forward(tape, batch.tokens, options), batch.targets);
    tape.backward(loss.loss);
    const double norm = gradient_norm(optimizer.parameters(), context).norm;
    if (watched) {
      TrainingStep now{step, loss.total / static_cast<double>(loss.counted), norm, 0, 0};
      for (const LayerStats& layer : stats) {
        now.entropy += layer.entropy / static_cast<double>(stats.size());
        now.largest += layer.largest / static_cast<double>(stats.size());
      }
      seen.push_back(now);
    }
    optimizer.step({.learning_rate = how.learning_rate, .gradient_factor = clip_factor(norm, 1)},
                   context);
    clear_gradients(optimizer.parameters());
    tell(step + 1);
  }
  return seen;
}

std::vector<double> losses_of(Transformer& model, const std::vector<std::int32_t>& text,
                              const Context& context) {
  Tape tape(Tape::Mode::forward, context);
  const Tensor rows =
      Tape::release(model.forward(tape, Tokens::one({text.begin(), text.end() - 1})));
  const Tensor logits = model.logits(rows, context);
  const Index entries = logits.shape()[1];
  std::vector<double> losses;
  for (Index t = 0; t < logits.shape()[0]; ++t) {
    const float* row = logits.data() + t * entries;
    const double largest = static_cast<double>(*std::max_element(row, row + entries));
    double sum = 0;
    for (Index i = 0; i < entries; ++i) sum += std::exp(static_cast<double>(row[i]) - largest);
    losses.push_back(largest + std::log(sum) - static_cast<double>(row[element(text, t + 1)]));
  }
  return losses;
}

}  // namespace rapt::lab
