#pragma once

#include "base/buffer.h"
#include "kernels/kernels.h"
#include "nn/gemm.h"

namespace rapt {

/// A weight [out, in] in the order in which the kernels of one instruction set read it as the right
/// operand of a product: panels of columns, one block of the depth after the other.
class PackedMatrix {
 public:
  /// Of f32.
  PackedMatrix(const Tensor& weight, const Context& context);

  Index out() const { return out_; }
  Index in() const { return in_; }
  /// As it was.
  Tensor expanded() const;

 private:
  friend void multiply(const Matrix&, const PackedMatrix&, const Product&, const Context&);

  const float* block(Index depth) const { return numbers_.data() + depth * width_; }

  const Kernels* kernels_;
  Index out_, in_;
  Index width_;  // columns with those that fill up the last panel
  Buffer<float> numbers_;
};

/// a · weight'. The same bits for any number of threads, and for a row whatever rows are beside it;
/// within multiply_error as other products are. With kernels of another instruction set than the
/// weight was packed for, it is expanded first. `to` is not added to.
void multiply(const Matrix& a, const PackedMatrix& weight, const Product& to,
              const Context& context);

}  // namespace rapt
