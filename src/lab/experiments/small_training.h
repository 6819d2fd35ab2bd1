#pragma once

#include <functional>
#include <span>
#include <vector>

#include "rapt/models/transformer.h"

namespace rapt::lab {
using namespace detail;

/// A language in which the last two tokens decide what may follow: with equal chance a successor of
/// the one or of the other is drawn. To speak it well a model has to look one token back.
class SmallLanguage {
 public:
  static constexpr Index vocabulary = 32, successors = 2;

  explicit SmallLanguage(std::uint64_t seed);
  std::vector<std::int32_t> text(Index tokens, std::uint64_t seed) const;
  /// The probability of a token after two others.
  double probability(std::int32_t before, std::int32_t last, std::int32_t next) const;
  /// Mean of -ln probability over a text: no model has a smaller loss on it in the long run.
  double best_loss(std::span<const std::int32_t> text) const;

 private:
  std::int32_t successor(int table, std::int32_t token, Index choice) const;
  std::uint64_t seed_;
};

/// A step of training, seen from outside.
struct TrainingStep {
  Index step;
  double loss, gradient_norm;
  double entropy;  // mean over layers, heads and queries, nats
  double largest;  // the same for the largest probability
};

struct SmallTraining {
  Index steps = 100, items = 8, tokens = 64;
  double learning_rate = 3e-3;
  std::uint64_t seed = 1;  // of the texts
  Index watch_every = 5;   // steps
};

/// Trains a model on texts of the language with AdamW; `step` is told how far it is.
std::vector<TrainingStep> train_small(Transformer& model, const SmallLanguage& language,
                                      const SmallTraining& how, const Context& context,
                                      const std::function<void(Index step)>& step);

/// -ln probability that the model gives to tokens 1, 2, ... of a text.
std::vector<double> losses_of(Transformer& model, const std::vector<std::int32_t>& text,
                              const Context& context);

}  // namespace rapt::lab
