#pragma once

#include <memory>
#include <string>

#include "rapt/context.h"
#include "rapt/tensor.h"

namespace rapt {

/// Weights in few bits: 32 elements of a row share a scale and, if there is one, a shift, both f16.
enum class Quantization {
  q8_0,  // scale * code, codes from -128 to 127: 34 bytes for 32 elements
  q8_1,  // scale * code + shift: 36 bytes
  q4_0,  // scale * (code - 8), codes from 0 to 15: 18 bytes
  q4_1,  // scale * code + shift: 20 bytes
};
template <>
inline constexpr EnumNames enum_names<Quantization>{"quantization", "q8_0, q8_1, q4_0, q4_1"};

/// A matrix of such weights, laid out for products. A handle: copies share the elements, which
/// never change.
class RAPT_API QuantizedMatrix {
 public:
  struct Impl;

  QuantizedMatrix() = default;
  /// Quantizes elements [rows, columns] of any type, with an error of at most half a scale; with a
  /// shift, the f16 rounding of the shift comes on top. Throws std::invalid_argument if a number is
  /// not finite or a scale is too large for f16.
  static QuantizedMatrix quantize(const Tensor& numbers, Quantization type,
                                  const Context& context = {});

  bool empty() const { return impl_ == nullptr; }
  /// [rows, columns]; no axes if it is empty.
  Shape shape() const;
  Quantization type() const;
  /// Memory of codes, scales and shifts.
  Index bytes() const;
  /// All elements as f32.
  Tensor dequantize() const;

 private:
  friend struct detail::Access;
  explicit QuantizedMatrix(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace rapt
