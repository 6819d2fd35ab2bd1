#include "nn/matmul/weight.h"

#include <cassert>

#include "base/check.h"
#include "nn/matmul/packed_matrix.h"
#include "nn/rows.h"

namespace rapt::detail {

namespace {

void multiply_stored(const Matrix& a, const Parameter& weight, const Product& to,
                     const Context& context) {
  if (!weight.quantized.empty()) return multiply(a, weight.quantized, to, context);
  const Tensor& used = weight.used();
  const Index out = used.shape()[0], in = used.shape()[1];
  const Matrix columns = Matrix{used.memory(), used.type(), out, in, in, 1}.transposed();
  if (used.type() == Type::bf16) return multiply_bf16(a, columns, to, context);
  multiply(a, columns, to, context);
}

}  // namespace

void multiply_weight(const Matrix& a, const Parameter& weight, const Product& to,
                     const Context& context) {
  if (weight.packed != nullptr) return multiply(a, *weight.packed, to, context);
  Product plain = to;
  plain.finish = nullptr;
  multiply_stored(a, weight, plain, context);
  if (to.finish == nullptr) return;
  assert(to.stride == weight.shape()[0]);
  for_each_stretch(context, a.rows * to.stride, [&](Index first, Index count) {
    to.finish(to.data + first, count, to.data + first);
  });
}

void multiply_backward(const Matrix& a, const Matrix& b, const Parameter& weight, const Product& to,
                       const Context& context) {
  if (weight.used().type() == Type::bf16) return multiply_bf16(a, b, to, context);
  multiply(a, b, to, context);
}

void check_trainable(const char* where, const Parameter& parameter) {
  check(parameter.quantized.empty(), where, ": ", parameter.name,
        " is quantized, which learns nothing; expected f32 on a tape that records");
  check(parameter.packed == nullptr, where, ": ", parameter.name,
        " is packed; expected unpack() before a tape records");
  check(parameter.value.type() == Type::f32, where, ": ", parameter.name, " has type ",
        to_string(parameter.value.type()), ", expected f32 on a tape that records");
}

}  // namespace rapt::detail
