#ifdef RAPT_MODELS
#include <gtest/gtest.h>

#include <cmath>

#include "rapt/models/train.h"
#include "support/refused.h"

namespace rapt::test {
namespace {

using Decay = Schedule::Decay;

/// A run of so many steps.
TrainOptions options(Index steps, double learning_rate, const Schedule& schedule) {
  return {.steps = steps, .learning_rate = learning_rate, .schedule = schedule};
}

TEST(Schedule, WarmsUpInAStraightLineToThePeak) {
  for (const Decay decay : {Decay::constant, Decay::linear, Decay::cosine}) {
    const TrainOptions run =
        options(14, 0.8, {.decay = decay, .min_learning_rate = 0.1, .warmup_steps = 4});
    for (Index step = 0; step < 4; ++step)
      EXPECT_DOUBLE_EQ(learning_rate_at(run, step), 0.2 * static_cast<double>(step + 1));
    EXPECT_DOUBLE_EQ(learning_rate_at(run, 4), 0.8);
  }
}

TEST(Schedule, DecaysToTheMinimumAndStaysThere) {
  TrainOptions run =
      options(12, 1.1, {.decay = Decay::linear, .min_learning_rate = 0.1, .warmup_steps = 2});
  EXPECT_DOUBLE_EQ(learning_rate_at(run, 3), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(run, 7), 0.6);
  EXPECT_DOUBLE_EQ(learning_rate_at(run, 11), 0.2);
  run.schedule.decay = Decay::cosine;
  EXPECT_DOUBLE_EQ(learning_rate_at(run, 7), 0.6);
  EXPECT_DOUBLE_EQ(learning_rate_at(run, 4), 0.1 + (1 + std::cos(M_PI / 5)) / 2);
  for (const Index step : {12, 13, 1000000}) {
    EXPECT_DOUBLE_EQ(learning_rate_at(run, step), 0.1);
    run.schedule.decay = Decay::linear;
    EXPECT_DOUBLE_EQ(learning_rate_at(run, step), 0.1);
    run.schedule.decay = Decay::cosine;
  }
  const TrainOptions constant = options(1, 0.3, {.decay = Decay::constant});
  for (const Index step : {0, 1, 1000000}) EXPECT_EQ(learning_rate_at(constant, step), 0.3);
}

TEST(Schedule, NeverRisesAfterTheWarmup) {
  for (const Decay decay : {Decay::linear, Decay::cosine}) {
    const TrainOptions run =
        options(500, 1, {.decay = decay, .min_learning_rate = 0.01, .warmup_steps = 10});
    for (Index step = 10; step < 520; ++step)
      EXPECT_LE(learning_rate_at(run, step + 1), learning_rate_at(run, step));
  }
}

TEST(Schedule, RefusesWhatMakesNoSense) {
  const auto refused = [](const TrainOptions& run, Index step, const std::string& word) {
    expect_refused([&] { learning_rate_at(run, step); }, {"train", word});
  };
  refused(options(5, -1, {}), 0, "learning_rate is -1");
  refused(options(5, INFINITY, {}), 0, "learning_rate is inf");
  refused(options(5, 1, {.min_learning_rate = 2}), 0, "min_learning_rate is 2");
  refused(options(5, 1, {.warmup_steps = -3}), 0, "warmup_steps is -3");
  refused(options(5, 1, {.warmup_steps = 5}), 0, "steps is 5, expected more than warmup_steps");
  refused(options(5, 1, {}), -1, "step is -1");
}

}  // namespace
}  // namespace rapt::test
#endif
