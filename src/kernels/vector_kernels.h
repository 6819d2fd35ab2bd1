#pragma once

#include "rapt/tensor.h"

namespace rapt::detail {

/// Loops over `count` contiguous elements.
struct VectorKernels {
  // Numbers of any type to f32 and back, rounded to nearest.
  void (*load)(const void* from, Type type, Index count, float* to) noexcept;
  void (*store)(const float* from, Index count, Type type, void* to) noexcept;

  // wide += numbers, numbers = 0; wide = numbers, numbers = 0.
  void (*widen)(float* numbers, double* wide, Index count) noexcept;
  void (*widen_first)(float* numbers, double* wide, Index count) noexcept;
  // out = (wide + rest) * factor; null: no `wide`.
  void (*narrow)(const double* wide, const float* rest, double factor, Index count,
                 float* out) noexcept;

  void (*exp2)(const float* x, Index count, float* y) noexcept;
  void (*tanh)(const float* x, Index count, float* y) noexcept;
};

}  // namespace rapt::detail
