#include "nn/weight.h"

#include "base/check.h"
#include "nn/packed_matrix.h"

namespace rapt {

void multiply_weight(const Matrix& a, const Parameter& weight, const Product& to,
                     const Context& context) {
  if (!weight.quantized.empty()) return multiply(a, weight.quantized, to, context);
  if (weight.packed != nullptr) return multiply(a, *weight.packed, to, context);
  const Tensor& used = weight.used();
  const Index out = used.shape()[0], in = used.shape()[1];
  multiply(a, Matrix{used.memory(), used.type(), out, in, in, 1}.transposed(), to, context);
}

void check_trainable(const char* where, const Parameter& parameter) {
  check(parameter.quantized.empty(), where, ": ", parameter.name,
        " is quantized, which learns nothing; expected f32 on a tape that records");
  check(parameter.packed == nullptr, where, ": ", parameter.name,
        " is packed; expected unpack() before a tape records");
  check(parameter.value.type() == Type::f32, where, ": ", parameter.name, " has type ",
        text(parameter.value.type()), ", expected f32 on a tape that records");
}

}  // namespace rapt
