#include <memory>

#include "base/buffer.h"
#include "nn/row_shape.h"
#include "nn/rows.h"
#include "rapt/nn/functional.h"

namespace rapt {
using namespace detail;
namespace {

/// Rows whose gains' gradients are added up in f32 before they enter a sum in f64.
constexpr Index rows_per_part = 64;

/// A norm that has run, and what its gradient needs.
struct Norm {
  const NetworkKernels::Norm* kernels;
  Variable x;
  Parameter* gain;
  Parameter* shift;  // or null
  RowShape shape;
  Buffer<RowMoments> moments;
  Context context;

  Tensor forward(double epsilon);
  void backward(Tensor dy) const;
};

Tensor Norm::forward(double epsilon) {
  Tensor y = Tensor::uninitialized(x.shape());
  for_each_row_block(context, shape.rows, shape.width, [&](Index first, Index count) {
    const Index at = first * shape.width;
    kernels->forward({.x = x.value().data() + at,
                      .gain = gain->value.data(),
                      .shift = shift == nullptr ? nullptr : shift->value.data(),
                      .rows = count,
                      .width = shape.width,
                      .epsilon = epsilon,
                      .moments = moments.data() + first,
                      .y = y.data() + at});
  });
  return y;
}

void Norm::backward(Tensor dy) const {
  const Index parts = divide_up(shape.rows, rows_per_part), width = shape.width;
  Tensor dgain({parts, width}), dshift({shift == nullptr ? 0 : parts, width});
  for_each_task(context, parts, [&](Index part, Index) {
    const Index first = part * rows_per_part;
    kernels->backward({.x = x.value().data() + first * width,
                       .gain = gain->value.data(),
                       .rows = std::min(rows_per_part, shape.rows - first),
                       .width = width,
                       .moments = moments.data() + first,
                       .dy = dy.data() + first * width,
                       .dgain = dgain.data() + part * width,
                       .dshift = shift == nullptr ? nullptr : dshift.data() + part * width});
  });
  const NetworkKernels& sums = network_kernels_of(context);
  float* to_gain = gain->gradient_or_zeros().data();
  float* to_shift = shift == nullptr ? nullptr : shift->gradient_or_zeros().data();
  for_each_column_block(context, width, [&](Index first, Index count) {
    sums.add_rows(dgain.data() + first, parts, width, count, to_gain + first);
    if (to_shift != nullptr)
      sums.add_rows(dshift.data() + first, parts, width, count, to_shift + first);
  });
  x.slot().add(std::move(dy));
}

/// A norm before its first row.
struct NormSpec {
  const char* where;
  const NetworkKernels::Norm& kernels;
  double epsilon;
};

Variable normalize(Tape& tape, const NormSpec& spec, const Variable& x, Parameter& gain,
                   Parameter* shift) {
  const RowShape shape = rows_of(spec.where, x);
  check_parameter(spec.where, gain, {shape.width});
  if (shift != nullptr) check_parameter(spec.where, *shift, {shape.width});
  check(spec.epsilon >= 0, spec.where, ": epsilon is ", spec.epsilon, ", expected at least 0");
  auto norm = std::make_shared<Norm>(
      Norm{&spec.kernels, x, &gain, shift, shape, Buffer<RowMoments>(shape.rows), tape.context()});
  Tensor y = norm->forward(spec.epsilon);
  return tape.record(std::move(y), [norm](Tensor dy) { norm->backward(std::move(dy)); });
}

}  // namespace

Variable layer_norm(Tape& tape, const Variable& x, Parameter& gain, Parameter* shift,
                    double epsilon) {
  const NetworkKernels& kernels = network_kernels_of(tape.context());
  return normalize(tape, {"layer_norm", kernels.layer_norm, epsilon}, x, gain, shift);
}

Variable rms_norm(Tape& tape, const Variable& x, Parameter& gain, double epsilon) {
  const NetworkKernels& kernels = network_kernels_of(tape.context());
  return normalize(tape, {"rms_norm", kernels.rms_norm, epsilon}, x, gain, nullptr);
}

}  // namespace rapt
