#ifdef RAPT_MODELS
#include <gtest/gtest.h>

#include <cmath>

#include "rapt/train.h"
#include "support/refused.h"

namespace rapt::test {
namespace {

using Decay = Schedule::Decay;

TEST(Schedule, WarmsUpInAStraightLineToThePeak) {
  for (const Decay decay : {Decay::constant, Decay::linear, Decay::cosine}) {
    const Schedule schedule{.decay = decay, .peak = 0.8, .floor = 0.1, .warmup = 4, .steps = 14};
    for (Index step = 0; step < 4; ++step)
      EXPECT_DOUBLE_EQ(learning_rate_at(schedule, step), 0.2 * static_cast<double>(step + 1));
    EXPECT_DOUBLE_EQ(learning_rate_at(schedule, 4), 0.8);
  }
}

TEST(Schedule, DecaysToTheFloorAndStaysThere) {
  Schedule schedule{.decay = Decay::linear, .peak = 1.1, .floor = 0.1, .warmup = 2, .steps = 12};
  EXPECT_DOUBLE_EQ(learning_rate_at(schedule, 3), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(schedule, 7), 0.6);
  EXPECT_DOUBLE_EQ(learning_rate_at(schedule, 11), 0.2);
  schedule.decay = Decay::cosine;
  EXPECT_DOUBLE_EQ(learning_rate_at(schedule, 7), 0.6);
  EXPECT_DOUBLE_EQ(learning_rate_at(schedule, 4), 0.1 + (1 + std::cos(M_PI / 5)) / 2);
  for (const Index step : {12, 13, 1000000}) {
    EXPECT_DOUBLE_EQ(learning_rate_at(schedule, step), 0.1);
    schedule.decay = Decay::linear;
    EXPECT_DOUBLE_EQ(learning_rate_at(schedule, step), 0.1);
    schedule.decay = Decay::cosine;
  }
  const Schedule constant{.decay = Decay::constant, .peak = 0.3};
  for (const Index step : {0, 1, 1000000}) EXPECT_EQ(learning_rate_at(constant, step), 0.3);
}

TEST(Schedule, NeverRisesAfterTheWarmup) {
  for (const Decay decay : {Decay::linear, Decay::cosine}) {
    const Schedule schedule{.decay = decay, .peak = 1, .floor = 0.01, .warmup = 10, .steps = 500};
    for (Index step = 10; step < 520; ++step)
      EXPECT_LE(learning_rate_at(schedule, step + 1), learning_rate_at(schedule, step));
  }
}

TEST(Schedule, RefusesWhatMakesNoSense) {
  const auto refused = [](const Schedule& schedule, Index step, const std::string& word) {
    expect_refused([&] { learning_rate_at(schedule, step); }, {"schedule", word});
  };
  refused({.peak = -1, .steps = 5}, 0, "peak is -1");
  refused({.peak = INFINITY, .steps = 5}, 0, "peak is inf");
  refused({.peak = 1, .floor = 2, .steps = 5}, 0, "floor is 2");
  refused({.warmup = -3, .steps = 5}, 0, "warmup is -3");
  refused({.warmup = 5, .steps = 5}, 0, "5 steps, expected more than the 5");
  refused({.steps = 5}, -1, "step is -1");
}

}  // namespace
}  // namespace rapt::test
#endif
