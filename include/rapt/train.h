#pragma once

#include "rapt/api.h"
#include "rapt/tensor.h"

namespace rapt {

/// Adam with decoupled weight decay.
struct AdamW {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;  // of parameters that decay
};

/// The learning rate from the first step of a run to the last: up in a straight line, then down as
/// `decay` says.
struct Schedule {
  enum class Decay { constant, linear, cosine };
  Decay decay = Decay::cosine;
  double peak = 1e-3;
  double floor = 0;  // where the decay ends and stays
  Index warmup = 0;  // steps; the last of them is the first at the peak
  Index steps = 0;   // of the whole run; constant needs none
};

/// Of a step counted from 0. Throws std::invalid_argument if the schedule makes no sense.
RAPT_API double learning_rate_at(const Schedule& schedule, Index step);

}  // namespace rapt
