#pragma once

#include <memory>
#include <string>

#include "rapt/context.h"
#include "rapt/tensor.h"

namespace rapt {

/// Weights in few bits: 32 numbers of a row share a scale and, if there is one, a shift, both f16.
enum class Quantization {
  q8_0,  // scale * code, codes from -128 to 127: 34 bytes for 32 numbers
  q8_1,  // scale * code + shift: 36 bytes
  q4_0,  // scale * (code - 8), codes from 0 to 15: 18 bytes
  q4_1,  // scale * code + shift: 20 bytes
};
/// "q8_0", "q8_1", "q4_0", "q4_1"
RAPT_API std::string text(Quantization type);
/// Throws std::invalid_argument if none is called so.
RAPT_API Quantization parse_quantization(const std::string& text);

/// A matrix of such weights, laid out for products. A handle: copies are the same numbers, which do
/// not change any more.
class RAPT_API QuantizedMatrix {
 public:
  struct Body;

  QuantizedMatrix() = default;
  explicit QuantizedMatrix(std::shared_ptr<const Body> body) : body_(std::move(body)) {}
  /// Numbers [rows, columns] of any type, each within half a scale of itself; with a shift, f16's
  /// rounding of the shift comes on top. Throws std::invalid_argument if a number is not finite or
  /// a scale is too large for f16.
  static QuantizedMatrix rounded(const Tensor& numbers, Quantization type,
                                 const Context& context = {});

  bool empty() const { return body_ == nullptr; }
  /// [rows, columns]; no axes if it is empty.
  Shape shape() const;
  Quantization type() const;
  /// Memory of codes, scales and shifts.
  Index bytes() const;
  /// All numbers as f32.
  Tensor expanded() const;

  const Body& body() const { return *body_; }

 private:
  std::shared_ptr<const Body> body_;
};

}  // namespace rapt
