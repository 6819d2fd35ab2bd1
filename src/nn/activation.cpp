#include "base/check.h"
#include "nn/row_shape.h"
#include "nn/rows.h"
#include "rapt/nn/functional.h"

namespace rapt {
using namespace detail;
namespace {

const NetworkKernels::Activate& kernels_for(const char* where, Activation how,
                                            const Context& context) {
  const int place = static_cast<int>(how);
  check(0 <= place && place < 4, where, ": activation number ", place, ", expected 0 to 3");
  return network_kernels_of(context).activate[place];
}

}  // namespace

Variable activate(Tape& tape, const Variable& x, Activation how) {
  rows_of("activate", x);
  const NetworkKernels::Activate& kernels = kernels_for("activate", how, tape.context());
  Tensor y = Tensor::uninitialized(x.shape());
  for_each_stretch(tape.context(), y.elements(), [&](Index first, Index count) {
    kernels.forward(x.value().data() + first, count, y.data() + first);
  });
  return tape.record(std::move(y), [x, &kernels, context = tape.context()](Tensor dy) {
    for_each_stretch(context, dy.elements(), [&](Index first, Index count) {
      kernels.backward(x.value().data() + first, count, dy.data() + first);
    });
    x.slot().add(std::move(dy));
  });
}

Variable gate(Tape& tape, const Variable& x, Activation how) {
  const RowShape in = rows_of("gate", x);
  check(in.width % 2 == 0, "gate: x has shape ", x.shape(), ", expected an even width");
  const NetworkKernels::Activate& kernels = kernels_for("gate", how, tape.context());
  const Index width = in.width / 2;
  Shape shape = x.shape();
  shape[shape.rank() - 1] = width;
  Tensor y = Tensor::uninitialized(shape);
  for_each_row_block(tape.context(), in.rows, in.width, [&](Index first, Index count) {
    kernels.gate(x.value().data() + first * in.width, count, width, y.data() + first * width);
  });
  return tape.record(
      std::move(y), [x, in, width, &kernels, context = tape.context()](const Tensor& dy) {
        Tensor dx = Tensor::uninitialized(x.shape());
        for_each_row_block(context, in.rows, in.width, [&](Index first, Index count) {
          kernels.gate_backward(x.value().data() + first * in.width, dy.data() + first * width,
                                count, width, dx.data() + first * in.width);
        });
        x.slot().add(std::move(dx));
      });
}

}  // namespace rapt
