#include "train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/check.h"
#include "base/indexed_vector.h"
#include "nn/rows.h"

namespace rapt::detail {
namespace {

void check_options(const AdamW& how) {
  for (const double beta : {how.beta1, how.beta2})
    check(beta >= 0 && beta < 1, "optimizer: beta is ", beta, ", expected 0 to less than 1");
  check(how.epsilon >= 0, "optimizer: epsilon is ", how.epsilon, ", expected at least 0");
  check(how.weight_decay >= 0, "optimizer: weight_decay is ", how.weight_decay,
        ", expected at least 0");
}

/// In f64, stretch by stretch and then in their order.
double sum_of_squares(const Tensor& x, const Context& context) {
  IndexedVector<double> parts(divide_up(x.elements(), numbers_per_task));
  const NetworkKernels& kernels = network_kernels_of(context);
  for_each_stretch(context, x.elements(), [&](Index first, Index count) {
    parts[first / numbers_per_task] = kernels.sum_squares(x.data() + first, count);
  });
  double sum = 0;
  for (const double part : parts) sum += part;
  return sum;
}

AdamStep prepared(const AdamW& how, const Optimizer::Step& now, Index steps, bool decays) {
  const double count = static_cast<double>(steps);
  return {.keep = decays ? 1 - now.learning_rate * how.weight_decay : 1,
          .beta1 = how.beta1,
          .beta2 = how.beta2,
          .size = now.learning_rate / (1 - std::pow(how.beta1, count)),
          .inverse_root = 1 / std::sqrt(1 - std::pow(how.beta2, count)),
          .epsilon = how.epsilon,
          .gradient_factor = now.gradient_factor};
}

void move(Parameter& parameter, AdamState& state, const AdamStep& step, const Context& context) {
  const NetworkKernels& kernels = network_kernels_of(context);
  const float* gradient = parameter.gradient.data();
  float* value = parameter.value.data();
  float* first = state.first.data();
  float* second = state.second.data();
  for_each_stretch(context, parameter.value.elements(), [&](Index at, Index count) {
    kernels.adam(step, gradient + at, count, value + at, first + at, second + at);
  });
}

}  // namespace

GradientNorm gradient_norm(std::span<Parameter* const> parameters, const Context& context) {
  GradientNorm result;
  double squares = 0;
  for (const Parameter* parameter : parameters) {
    if (parameter->gradient.empty()) continue;
    const double own = sum_of_squares(parameter->gradient, context);
    if (!std::isfinite(own) && result.bad == nullptr) result.bad = parameter;
    squares += own;
  }
  result.norm = std::sqrt(squares);
  return result;
}

double clip_factor(double norm, std::optional<double> limit) {
  check(limit.value_or(1) > 0, "clip: the limit is ", limit.value_or(1), ", expected more than 0");
  return limit ? std::min(1.0, *limit / (norm + 1e-6)) : 1;
}

Optimizer::Optimizer(std::vector<Parameter*> parameters, const AdamW& how)
    : parameters_(std::move(parameters)), state_(parameters_.size()), how_(how) {
  check_options(how_);
  std::set<const Parameter*> seen;
  for (const Parameter* parameter : parameters_)
    check(seen.insert(parameter).second, "optimizer: parameter ", parameter->name,
          " is given twice");
}

void Optimizer::step(const Step& now, const Context& context) {
  check(now.learning_rate >= 0 && std::isfinite(now.learning_rate), "optimizer: learning rate is ",
        now.learning_rate, ", expected a finite number that is not negative");
  for (const Parameter* parameter : parameters_)
    check(parameter->gradient.empty() || parameter->gradient.shape() == parameter->value.shape(),
          "optimizer: gradient of ", parameter->name, " has shape ", parameter->gradient.shape(),
          ", expected ", parameter->value.shape());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = *parameters_[i];
    AdamState& state = state_[i];
    if (parameter.gradient.empty()) continue;
    if (state.first.empty()) state.first = Tensor(parameter.value.shape());
    if (state.second.empty()) state.second = Tensor(parameter.value.shape());
    ++state.steps;
    move(parameter, state, prepared(how_, now, state.steps, parameter.decays), context);
  }
}

void Optimizer::restore(std::vector<AdamState> state) {
  check(state.size() == parameters_.size(), "optimizer: state of ", state.size(),
        " parameters, expected ", parameters_.size());
  for (std::size_t i = 0; i < state.size(); ++i) {
    const Parameter& parameter = *parameters_[i];
    check(state[i].steps >= 0, "optimizer: ", state[i].steps, " steps of ", parameter.name);
    for (const Tensor* moment : {&state[i].first, &state[i].second})
      check(state[i].steps == 0 ? moment->empty() : moment->shape() == parameter.value.shape(),
            "optimizer: a moment of ", parameter.name, " has shape ", moment->shape(), " after ",
            state[i].steps, " steps, expected ", parameter.value.shape(),
            " or none before the first");
  }
  state_ = std::move(state);
}

void clear_gradients(std::span<Parameter* const> parameters) {
  for (Parameter* parameter : parameters) parameter->gradient = {};
}

}  // namespace rapt::detail
