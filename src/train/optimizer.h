#pragma once

#include <optional>
#include <span>
#include <vector>

#include "rapt/context.h"
#include "rapt/models/train.h"
#include "rapt/nn/tape.h"

namespace rapt::detail {

/// The length of all gradients taken as one vector.
struct GradientNorm {
  double norm = 0;
  /// The first parameter with an infinity or a NaN in its gradient; null if all is well.
  const Parameter* bad = nullptr;
};

/// Parameters without a gradient do not count.
GradientNorm gradient_norm(std::span<Parameter* const> parameters, const Context& context = {});

/// What gradients are multiplied by so that their norm is at most `limit`, as PyTorch's
/// clip_grad_norm_ does: limit / (norm + 1e-6) if that is less than 1. Without a limit: 1.
double clip_factor(double norm, std::optional<double> limit);

/// What Adam remembers of a parameter.
struct AdamState {
  Tensor first, second;  // f32, of the parameter's shape; empty before the first step
  Index steps = 0;       // that had a gradient
};

/// AdamW as PyTorch defines it. The state is the caller's to save, in the order of the parameters.
class Optimizer {
 public:
  /// What one step needs besides the options.
  struct Step {
    double learning_rate;
    double gradient_factor = 1;
  };

  /// Throws std::invalid_argument if an option makes no sense or a parameter comes twice.
  Optimizer(std::vector<Parameter*> parameters, const AdamW& how);

  /// Moves every parameter that has a gradient; the gradients stay as they are.
  void step(const Step& now, const Context& context = {});

  std::span<Parameter* const> parameters() const { return parameters_; }
  std::span<const AdamState> state() const { return state_; }
  /// Throws std::invalid_argument if shapes disagree with the parameters.
  void restore(std::vector<AdamState> state);

 private:
  std::vector<Parameter*> parameters_;
  std::vector<AdamState> state_;
  AdamW how_;
};

/// Forgets the gradients: the next ones are not added to them.
void clear_gradients(std::span<Parameter* const> parameters);

}  // namespace rapt::detail
