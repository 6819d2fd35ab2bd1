#pragma once

#include "nn/matmul/quantized_matrix.h"
#include "rapt/nn/tape.h"

namespace rapt::detail {

/// a · weight', by what the weight is made of. a is f32 and row-major; `to` is not added to and, if
/// numbers are finished, row-major.
void multiply_weight(const Matrix& a, const Parameter& weight, const Product& to,
                     const Context& context);

/// a · b, a product of the weight's backward pass: of bf16 if that is what products read of the
/// weight, so that all three products of a layer round alike.
void multiply_backward(const Matrix& a, const Matrix& b, const Parameter& weight, const Product& to,
                       const Context& context);

/// What a tape that records needs: f32, not quantized. `where` begins the message.
void check_trainable(const char* where, const Parameter& parameter);

}  // namespace rapt::detail
