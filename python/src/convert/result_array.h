#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "python/src/convert/array.h"

namespace rapt::python {

/// What DLPack calls a type.
nb::dlpack::dtype dtype_of(Type type);

/// Gives results back in the library that the caller's arrays came from: PyTorch for PyTorch, numpy
/// for numpy, memoryview for other buffers, an object with __dlpack__ for the rest.
class ResultArray {
 public:
  explicit ResultArray(const Array& like) : like_(like.object()) {}

  /// The numbers move into the array; nothing is copied. With Layout::blhd, a [batch, heads,
  /// tokens, dim] tensor becomes a [batch, tokens, heads, dim] array with exchanged strides.
  nb::object array(Tensor tensor, Layout layout = Layout::bhld) const;
  nb::object array(std::shared_ptr<const Tensor> tensor, Layout layout) const;
  nb::object array(std::vector<float> numbers, const Shape& shape) const;
  nb::object array(std::vector<double> numbers, const Shape& shape) const;
  /// None for an empty tensor.
  nb::object array_or_none(Tensor tensor) const;

 private:
  nb::object like_;
};

/// Memory that a result is written into, and the array it becomes. numpy makes its own: wrapping
/// ours costs a microsecond or two, which small calls feel.
class OutputArray {
 public:
  OutputArray(const Array& like, const Shape& shape, Type type);

  AnyMutableView view();
  nb::object take();

 private:
  ResultArray answer_;
  Shape shape_;
  Type type_;
  Tensor tensor_;
  nb::object object_;
  std::optional<Array> array_;
};

}  // namespace rapt::python
