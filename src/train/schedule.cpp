#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "rapt/train.h"

namespace rapt {
namespace {

void check_schedule(const Schedule& schedule) {
  check(schedule.peak >= 0 && std::isfinite(schedule.peak), "schedule: peak is ", schedule.peak,
        ", expected a finite number that is not negative");
  check(schedule.floor >= 0 && schedule.floor <= schedule.peak, "schedule: floor is ",
        schedule.floor, ", expected 0 to the peak, ", schedule.peak);
  check(schedule.warmup >= 0, "schedule: warmup is ", schedule.warmup, ", expected at least 0");
  check(schedule.decay == Schedule::Decay::constant || schedule.steps > schedule.warmup,
        "schedule: ", schedule.steps, " steps, expected more than the ", schedule.warmup,
        " of the warmup");
}

/// 1 at the start of the decay, 0 at its end.
double share_left(Schedule::Decay decay, double done) {
  if (decay == Schedule::Decay::linear) return 1 - done;
  if (decay == Schedule::Decay::cosine) return (1 + std::cos(std::numbers::pi * done)) / 2;
  return 1;
}

}  // namespace

double learning_rate_at(const Schedule& schedule, Index step) {
  check_schedule(schedule);
  check(step >= 0, "schedule: step is ", step, ", expected at least 0");
  if (step < schedule.warmup)
    return schedule.peak * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup);
  const double length = static_cast<double>(schedule.steps - schedule.warmup);
  const double done = std::min(1.0, static_cast<double>(step - schedule.warmup) / length);
  return schedule.floor + (schedule.peak - schedule.floor) * share_left(schedule.decay, done);
}

}  // namespace rapt
