#include "rapt/nn/tape.h"

#include "kernels/context.h"
#include "nn/elementwise.h"
#include "nn/matmul/packed_matrix.h"

namespace rapt {
using namespace detail;

void Parameter::quantize(Quantization type, const Context& context) {
  check(quantized.empty(), "quantize: ", name, " is quantized already");
  unpack();
  check(value.shape().rank() == 2, "quantize: ", name, " has shape ", value.shape(),
        ", expected a matrix");
  quantized = QuantizedMatrix::quantize(value, type, context);
  value = {};
  rounded = {};
  gradient = {};
}

void Parameter::pack(const Context& context) {
  check(value.shape().rank() == 2 && rounded.empty(), "pack: ", name, " has shape ", shape(),
        ", expected a matrix that is neither packed nor rounded");
  packed = std::make_shared<const PackedMatrix>(value, context);
  value = {};
  gradient = {};
}

void Parameter::unpack() {
  if (packed == nullptr) return;
  value = packed->expanded();
  packed = nullptr;
}

Shape Parameter::shape() const {
  if (packed != nullptr) return {packed->out(), packed->in()};
  return quantized.empty() ? value.shape() : quantized.shape();
}

Type Parameter::type() const { return packed != nullptr ? packed->type() : value.type(); }

Tensor& Parameter::gradient_or_zeros() {
  check(quantized.empty(), "gradient: ", name, " is quantized, which learns nothing");
  check(packed == nullptr, "gradient: ", name, " is packed, expected unpack() before");
  if (gradient.empty()) gradient = Tensor(value.shape());
  return gradient;
}

void GradientSlot::add(Tensor more) const {
  if (!tracked()) return;
  check(more.shape() == state_->shape, "gradient: shape ", more.shape(), ", expected ",
        state_->shape);
  if (state_->sum.empty()) {
    state_->sum = std::move(more);
  } else {
    add_to(state_->sum, more, state_->context);
  }
}

const Tensor& Variable::gradient() const {
  check(tracked() && !slot_.state_->sum.empty(),
        "gradient: there is none of this variable, "
        "expected a tracked input after backward");
  return slot_.state_->sum;
}

Tape::Tape(Mode mode, Context context) : mode_(mode), context_(std::move(context)) {}

Variable Tape::input(Tensor value, bool tracked) const {
  GradientSlot slot;
  if (tracked && records())
    slot.state_ =
        std::make_shared<GradientSlot::State>(GradientSlot::State{value.shape(), context_});
  return {std::make_shared<Tensor>(std::move(value)), std::move(slot)};
}

Variable Tape::detach(const Variable& x) const {
  GradientSlot slot;
  if (records())
    slot.state_ = std::make_shared<GradientSlot::State>(GradientSlot::State{x.shape(), context_});
  return {x.value_, std::move(slot)};
}

Tensor Tape::release(Variable x) {
  return x.value_.use_count() == 1 ? std::move(*x.value_) : x.value_->clone();
}

Variable Tape::record(Tensor value, std::function<void(Tensor gradient)> backward) {
  Variable result = input(std::move(value), true);
  if (records()) steps_.push_back({result.slot(), std::move(backward)});
  return result;
}

void Tape::backward(const Variable& result) {
  check(result.value().elements() == 1, "backward: the result has shape ", result.shape(),
        ", expected one number");
  Tensor one(result.shape());
  one.data()[0] = 1;
  backward(result, std::move(one));
}

void Tape::backward(const Variable& result, Tensor gradient) {
  check(records(), "backward: the tape was made with Mode::forward, expected Mode::train");
  result.slot().add(std::move(gradient));
  while (!steps_.empty()) {
    Step step = std::move(steps_.back());
    steps_.pop_back();
    Tensor of_result = std::move(step.slot.state_->sum);
    if (!of_result.empty()) step.backward(std::move(of_result));
  }
}

}  // namespace rapt
