#pragma once

#include "base/check.h"
#include "rapt/nn/tape.h"

namespace rapt::detail {

// What the operands of an operation must be; `where` opens the message of a std::invalid_argument.

/// Contiguous rows.
struct RowShape {
  Index rows, width;
};

/// The shape of x as rows: all axes but the last count rows.
inline RowShape rows_of(const char* where, const Variable& x) {
  check(!x.empty() && x.shape().rank() >= 1, where, ": x has no numbers, expected [rows, width]");
  check(x.value().type() == Type::f32, where, ": x is ", to_string(x.value().type()),
        ", expected f32");
  const Index last = x.shape().rank() - 1;
  RowShape shape{1, x.shape()[last]};
  for (Index axis = 0; axis < last; ++axis) shape.rows *= x.shape()[axis];
  return shape;
}

/// Throws unless the parameter has this shape.
inline void check_parameter(const char* where, const Parameter& parameter, const Shape& shape) {
  check(parameter.value.shape() == shape && parameter.value.type() == Type::f32, where, ": ",
        parameter.name, " is ", to_string(parameter.value.type()), " of shape ",
        parameter.value.shape(), ", expected f32 of shape ", shape);
}

}  // namespace rapt::detail
