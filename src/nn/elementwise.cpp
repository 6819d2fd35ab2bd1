#include "nn/elementwise.h"

#include "base/check.h"
#include "nn/row_shape.h"
#include "nn/rows.h"
#include "rapt/nn/functional.h"

namespace rapt {
using namespace detail;
namespace {

void scale_numbers(const Tensor& x, float factor, Tensor& y, const Context& context) {
  const NetworkKernels& kernels = network_kernels_of(context);
  for_each_stretch(context, x.elements(), [&](Index first, Index count) {
    kernels.scale(x.data() + first, factor, count, y.data() + first);
  });
}

}  // namespace

void detail::add_to(Tensor& to, const Tensor& more, const Context& context) {
  check(to.shape() == more.shape(), "add: shapes ", to.shape(), " and ", more.shape(),
        ", expected the same");
  const NetworkKernels& kernels = network_kernels_of(context);
  for_each_stretch(context, to.elements(), [&](Index first, Index count) {
    kernels.add(to.data() + first, more.data() + first, count);
  });
}

void detail::scale_in_place(Tensor& x, double factor, const Context& context) {
  scale_numbers(x, static_cast<float>(factor), x, context);
}

Variable add(Tape& tape, const Variable& a, const Variable& b) {
  rows_of("add", a), rows_of("add", b);
  check(a.shape() == b.shape(), "add: shapes ", a.shape(), " and ", b.shape(),
        ", expected the same");
  Tensor y = Tensor::uninitialized(a.shape());
  const NetworkKernels& kernels = network_kernels_of(tape.context());
  for_each_stretch(tape.context(), y.elements(), [&](Index first, Index count) {
    kernels.sum(a.value().data() + first, b.value().data() + first, count, y.data() + first);
  });
  return tape.record(std::move(y), [a = a.slot(), b = b.slot()](Tensor dy) {
    if (a.tracked() && b.tracked()) a.add(dy.clone());
    (b.tracked() ? b : a).add(std::move(dy));
  });
}

Variable scale(Tape& tape, const Variable& x, double factor) {
  rows_of("scale", x);
  Tensor y = Tensor::uninitialized(x.shape());
  const float f = static_cast<float>(factor);
  scale_numbers(x.value(), f, y, tape.context());
  return tape.record(std::move(y), [x = x.slot(), f, context = tape.context()](Tensor dy) {
    scale_numbers(dy, f, dy, context);
    x.add(std::move(dy));
  });
}

Variable dropout(Tape& tape, const Variable& x, double rate, const DropoutKey& key) {
  rows_of("dropout", x);
  check(rate >= 0 && rate <= 1, "dropout: rate is ", rate, ", expected 0 to 1");
  if (rate == 0) return x;
  Tensor y = dropped(x.value(), rate, key, tape.context());
  return tape.record(std::move(y), [x = x.slot(), rate, key, context = tape.context()](Tensor dy) {
    drop(dy, rate, key, context);
    x.add(std::move(dy));
  });
}

}  // namespace rapt
