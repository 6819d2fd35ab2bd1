#pragma once

#include "rapt/context.h"
#include "rapt/tensor.h"

namespace rapt::detail {

/// A borrowed matrix: element (r, c) is r * row_step + c * column_step elements from the first, and
/// one of the two steps is 1.
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
  /// What numbers become in the end, in place; null: nothing else. Only of products with a weight.
  void (*finish)(const float* x, Index count, float* y) noexcept = nullptr;
};

/// a · b. A row of the result has the same bits for any number of threads and whatever other rows a
/// has: threads share out parts of the result, and sums run over the depth in one order, which
/// depends on the depth and the instruction set alone. Numbers of a type other than f32 are
/// widened. With rows and a depth of any size; a depth of 0 gives zeros or the bias.
void multiply(const Matrix& a, const Matrix& b, const Product& to, const Context& context);

/// The same where operands are to be taken as bf16: numbers of other types are rounded to nearest,
/// ties to even, as they are packed, and products are summed in f32, whether for one row or many.
/// Where the instruction set multiplies no bf16 (Kernels::has_bf16) nothing is rounded: it is
/// multiply.
void multiply_bf16(const Matrix& a, const Matrix& b, const Product& to, const Context& context);

}  // namespace rapt::detail
