#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "rapt/models/train.h"

namespace rapt {
using namespace detail;
namespace {

void check_schedule(const TrainOptions& options) {
  const Schedule& schedule = options.schedule;
  check(options.learning_rate >= 0 && std::isfinite(options.learning_rate),
        "train: learning_rate is ", options.learning_rate,
        ", expected a finite number that is not negative");
  check(schedule.min_learning_rate >= 0 && schedule.min_learning_rate <= options.learning_rate,
        "train: min_learning_rate is ", schedule.min_learning_rate,
        ", expected 0 to learning_rate, which is ", options.learning_rate);
  check(schedule.warmup_steps >= 0, "train: warmup_steps is ", schedule.warmup_steps,
        ", expected at least 0");
  check(schedule.decay == Schedule::Decay::constant || options.steps > schedule.warmup_steps,
        "train: steps is ", options.steps, ", expected more than warmup_steps, which is ",
        schedule.warmup_steps);
}

/// 1 at the start of the decay, 0 at its end.
double share_left(Schedule::Decay decay, double done) {
  if (decay == Schedule::Decay::linear) return 1 - done;
  if (decay == Schedule::Decay::cosine) return (1 + std::cos(std::numbers::pi * done)) / 2;
  return 1;
}

}  // namespace

double learning_rate_at(const TrainOptions& options, Index step) {
  check_schedule(options);
  check(step >= 0, "train: step is ", step, ", expected at least 0");
  const Schedule& schedule = options.schedule;
  const double peak = options.learning_rate, least = schedule.min_learning_rate;
  const Index warmup = schedule.warmup_steps;
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  const double length = static_cast<double>(options.steps - warmup);
  const double done = std::min(1.0, static_cast<double>(step - warmup) / length);
  return least + (peak - least) * share_left(schedule.decay, done);
}

}  // namespace rapt
