#include <utility>

#include "base/check.h"
#include "nn/matmul/weight.h"
#include "nn/rows.h"
#include "rapt/nn/functional.h"

namespace rapt {
using namespace detail;
namespace {

/// A tensor [rows, columns] as it is in memory.
Matrix matrix_of(const Tensor& x) {
  return {x.memory(), x.type(), x.shape()[0], x.shape()[1], x.shape()[1], 1};
}

void check_linear(const Tape& tape, const Tensor& x, const Parameter& parameter,
                  const Parameter* bias) {
  const Shape weight = parameter.shape();
  check(x.shape().rank() == 2 && x.type() == Type::f32, "linear: x has shape ", x.shape(),
        " and type ", to_string(x.type()), ", expected [rows, in] and f32");
  check(weight.rank() == 2 && weight[1] == x.shape()[1], "linear: weight has shape ", weight,
        ", expected [out, ", x.shape()[1], "] for x ", x.shape());
  if (tape.records()) check_trainable("linear", parameter);
  if (bias == nullptr) return;
  check(bias->value.shape() == Shape{weight[0]} && bias->value.type() == Type::f32,
        "linear: bias has shape ", bias->value.shape(), " and type ", to_string(bias->value.type()),
        ", expected [", weight[0], "] and f32");
}

Product result_in(Tensor& y, const Parameter* bias) {
  return {.data = y.data(),
          .stride = y.shape()[1],
          .bias = bias == nullptr ? nullptr : bias->value.data()};
}

}  // namespace

Variable linear_activated(Tape& tape, const Variable& x, Parameter& weight, Parameter* bias,
                          Activation how) {
  if (tape.records()) return activate(tape, linear(tape, x, weight, bias), how);
  check(!x.empty(), "linear: x is empty, expected a variable [rows, in]");
  check_linear(tape, x.value(), weight, bias);
  Tensor y = Tensor::uninitialized({x.shape()[0], weight.shape()[0]});
  Product to = result_in(y, bias);
  to.finish = network_kernels_of(tape.context()).activate[static_cast<int>(how)].forward;
  multiply_weight(matrix_of(x.value()), weight, to, tape.context());
  return tape.record(std::move(y), nullptr);
}

Variable linear(Tape& tape, const Variable& x, Parameter& weight, Parameter* bias) {
  check(!x.empty(), "linear: x is empty, expected a variable [rows, in]");
  check_linear(tape, x.value(), weight, bias);
  const Index rows = x.shape()[0], out = weight.shape()[0];
  Tensor y = Tensor::uninitialized({rows, out});
  multiply_weight(matrix_of(x.value()), weight, result_in(y, bias), tape.context());
  if (!tape.records()) return tape.record(std::move(y), nullptr);
  const auto undo = [x, &weight, bias, context = tape.context()](Tensor dy) {
    const Index in = x.shape()[1];
    multiply_backward(matrix_of(dy).transposed(), matrix_of(x.value()), weight,
                      {.data = weight.gradient_or_zeros().data(), .stride = in, .add = true},
                      context);
    if (bias != nullptr) add_row_sums(dy.data(), dy.shape()[0], bias->gradient_or_zeros(), context);
    if (!x.tracked()) return;
    Tensor dx = Tensor::uninitialized(x.shape());
    multiply_backward(matrix_of(dy), matrix_of(weight.used()), weight,
                      {.data = dx.data(), .stride = in}, context);
    x.slot().add(std::move(dx));
  };
  return tape.record(std::move(y), undo);
}

}  // namespace rapt
