#pragma once

#include "base/buffer.h"
#include "kernels/kernels.h"
#include "nn/matmul/gemm.h"

namespace rapt::detail {

/// A weight [out, in] in the order in which the kernels of one instruction set read it as the right
/// operand of a product: panels of columns, one block of the depth after the other.
class PackedMatrix {
 public:
  /// Packs a weight of any type. f16, and bf16 where the context's instruction set does not
  /// multiply it, is widened to f32 as it is read.
  PackedMatrix(const Tensor& weight, const Context& context);

  Index out() const { return out_; }
  Index in() const { return in_; }
  Type type() const { return type_; }
  Index bytes() const;
  /// As it was.
  Tensor expanded() const;
  /// Row `row` of the weight, `in` elements, as f32: what an embedding looks up. Its elements are a
  /// panel's width apart, so it costs a line of cache for each.
  void expand_row(Index row, float* to) const;

 private:
  friend void multiply(const Matrix&, const PackedMatrix&, const Product&, const Context&);

  template <class T>
  void pack(const Tensor& weight, const Context& context);
  /// Row `row` as elements of type To, from elements of type T that begin at `blocks`.
  template <class T, class To>
  void copy_row(const T* blocks, Index row, To* to) const;
  /// Whether it is multiplied as bf16: pairs of depths are interleaved then.
  bool in_bf16() const { return bf16_.size() > 0; }
  bool is_widened() const { return narrow_.size() > 0; }
  template <class T>
  void multiply_by(const Matrix& a, const Product& to, const Context& context) const;
  template <class T>
  class Left;
  template <class T>
  struct Block;
  template <class T>
  void multiply_block(const Block<T>& block, const MatrixResult& to,
                      decltype(Product::finish) finish) const;

  /// The address of the block that begins at a depth.
  template <class T>
  const T* block(Index depth) const;
  /// The strips of a block times its panels from a column on.
  template <class T>
  void multiply_panels(const Block<T>& block, Index column, const MatrixResult& to) const;

  const Kernels* kernels_;
  Type type_;
  Index out_, in_;
  Index width_ = 0;       // columns with those that fill up the last panel
  Buffer<float> floats_;  // one of the three
  Buffer<Bf16> bf16_;
  Buffer<std::uint16_t> narrow_;  // bits of f16 or bf16, instead of floats
};

/// a · weight'. The same bits for any number of threads, and for a row in any batch. The bits of a
/// product with the unpacked weight: of f32 and f16 within the bound for f32; a weight of bf16
/// makes a product of bf16 where the instruction set multiplies that, within the bound for bf16
/// (docs/exactness.md): a is
/// rounded, whether it is one row or many. With kernels of another instruction set than the weight
/// was packed for, it is expanded first. `to` is not added to.
void multiply(const Matrix& a, const PackedMatrix& weight, const Product& to,
              const Context& context);

}  // namespace rapt::detail
