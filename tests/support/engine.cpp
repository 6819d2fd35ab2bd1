#include "support/engine.h"

#include <algorithm>

#include "kernels/kernels.h"

namespace rapt::test {
using namespace detail;

namespace {

std::vector<Context> contexts(bool with_bf16) {
  std::vector<Context> all;
  for (const Kernels* kernels : supported_kernels())
    if (kernels->has_bf16() == with_bf16) all.emplace_back(2, kernels->name);
  return all;
}

}  // namespace

const std::vector<Context>& every_isa() {
  static const std::vector<Context> all = contexts(false);
  return all;
}

const std::vector<Context>& every_bf16_isa() {
  static const std::vector<Context> all = contexts(true);
  return all;
}

Answer run(View dout, View q, View k, View v, const Attention& how, const Context& context) {
  Attended forward = attend(q, k, v, how, context);
  Gradients backward = attend_backward(dout, q, k, v, forward, how, context);
  return {std::move(forward), std::move(backward)};
}

Answer run(const Operands& operands, const Context& context) {
  return run(operands.dout, operands.q, operands.k, operands.v, operands.how, context);
}

std::string where(const Case& c, const Context& context) {
  return c.repro() + " on " + context.isa();
}

Tensor random_tensor(const Shape& shape, std::uint64_t seed) {
  Tensor tensor(shape);
  Random random(seed);
  for (float& number : tensor.numbers()) number = static_cast<float>(random.normal());
  return tensor;
}

Small::Small(const Shape& q_shape, const Shape& kv_shape, std::uint64_t seed)
    : q(random_tensor(q_shape, 4 * seed)),
      k(random_tensor(kv_shape, 4 * seed + 1)),
      v(random_tensor(kv_shape, 4 * seed + 2)),
      dout(random_tensor(q_shape, 4 * seed + 3)) {}

Answer Small::answer(const Context& context) const { return run(dout, q, k, v, how, context); }

float& at(Tensor& tensor, Index item, Index head, Index token, Index column) {
  const Shape& shape = tensor.shape();
  return tensor.data()[((item * shape[1] + head) * shape[2] + token) * shape[3] + column];
}

View slice(View view, Index item, Index head) {
  const Shape shape{1, 1, view.tokens(), view.dim()};
  return View::unchecked(view.row(item, head, 0), shape, view.strides());
}

}  // namespace rapt::test
