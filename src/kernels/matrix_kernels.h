#pragma once

#include "rapt/tensor.h"

namespace rapt::detail {

/// Rows of a left or columns of a right operand of a matrix product, each a line along the depth:
/// number k of line i is i * step + k * depth_step numbers from the first. One step is 1.
struct MatrixLines {
  const void* data;
  Type type;
  Index count, depth;
  Index step, depth_step;
};

/// Where a block of a matrix product goes.
struct MatrixResult {
  float* data;
  Index stride;  // between rows
  Index rows, columns;
  bool add;           // to what is there
  const float* bias;  // a number for each column, or null; not with `add`
};

/// Products of matrices of any size, of operands packed as numbers of type T. Lines are packed in
/// groups of `strip` rows, with zeros in the end, and of `panel` columns, in the last group as many
/// as there are in whole `unit`s; a group holds its lines' numbers times the depth, filled up with
/// zeros to whole `depth_unit`s.
///
///   float  strips [depth][strip], panels [depth][columns]; sums are chains of 16 terms, at most 16
///          of which make a block
///   Bf16   strips [strip][depth], panels [depth / 2][columns][2]; a block is one chain
template <class T>
struct MatrixKernels {
  Index strip, panel, unit;
  Index depth, depth_unit;  // depth: of a block, at most
  void (*pack_strips)(const MatrixLines& rows, T* out) noexcept;
  void (*pack_panels)(const MatrixLines& columns, T* out) noexcept;
  /// depth: in whole units.
  void (*product)(const T* strips, const T* panels, Index depth, const MatrixResult& to) noexcept;
};

/// Products of f32 rows with weights that are not f32 panels: the bits of MatrixKernels<float>.
struct WeightKernels {
  // A few rows, `stride` apart, times contiguous columns that are not packed. Blocks of the depth
  // follow one another.
  void (*gemv)(const float* left, Index stride, const MatrixLines& columns,
               const MatrixResult& to) noexcept;
  // Panels of f16 or bf16.
  void (*product_f16)(const float* strips, const F16* panels, Index depth,
                      const MatrixResult& to) noexcept;
  void (*product_bf16)(const float* strips, const Bf16* panels, Index depth,
                       const MatrixResult& to) noexcept;
};

}  // namespace rapt::detail
