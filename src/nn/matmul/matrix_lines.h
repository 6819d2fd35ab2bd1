#pragma once

#include "kernels/bf16_kernels.h"
#include "kernels/context.h"
#include "nn/matmul/gemm.h"

namespace rapt::detail {

/// Rows of a matrix as lines along the depth.
inline MatrixLines rows_of(const Matrix& m) {
  return {m.data, m.type, m.rows, m.columns, m.row_step, m.column_step};
}

/// Lines [line, line + count) over depths [depth, depth + deep).
inline MatrixLines part_of(const MatrixLines& all, Index line, Index count, Index depth,
                           Index deep) {
  MatrixLines part = all;
  const Index offset = line * all.step + depth * all.depth_step;
  part.data =
      static_cast<const std::byte*>(all.data) + offset * static_cast<Index>(size_of(all.type));
  part.count = count;
  part.depth = deep;
  return part;
}

}  // namespace rapt::detail
