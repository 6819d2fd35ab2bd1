#pragma once

#include "rapt/context.h"
#include "rapt/tensor.h"

namespace rapt {

/// A borrowed matrix: element (r, c) lies r * row_step + c * column_step numbers from the first,
/// and one of the two steps is 1.
struct Matrix {
  const void* data;
  Type type;
  Index rows, columns;
  Index row_step, column_step;

  Matrix transposed() const { return {data, type, columns, rows, column_step, row_step}; }
};

/// Where a product goes: rows `stride` numbers apart.
struct Product {
  float* data;
  Index stride;
  bool add = false;             // to what is there
  const float* bias = nullptr;  // one number for each column, added to every row; not with `add`
};

/// a · b. The same bits for any number of threads: threads share out parts of the result, and sums
/// run over the depth in one fixed order. Numbers of a type other than f32 are widened.
void multiply(const Matrix& a, const Matrix& b, const Product& to, const Context& context);

}  // namespace rapt
