#pragma once

#include <functional>
#include <string>
#include <vector>

#include "families/family.h"

namespace rapt {

/// The tensors of a file or of several, whatever their format is.
struct StoredTensors {
  std::string source;              // what messages call it
  std::vector<std::string> names;  // ascending
  /// Axes of a tensor; none if there is no such tensor.
  std::function<std::vector<Index>(const std::string& name)> shape;
  std::function<Tensor(const std::string& name)> read;
  /// What a tensor that is there is stored as: bf16, f16, or f32 for all the rest.
  std::function<Type(const std::string& name)> type;
  /// Bytes of a tensor that is there.
  std::function<Index(const std::string& name)> bytes;
  bool finite = true;       // what is not is refused
  double beside_bytes = 0;  // of memory that more weights of the model take, such as dense layers

  bool has(const std::string& name) const;
};

/// Throws std::runtime_error if a part of a parameter is missing or has another shape.
void check_part(const StoredTensors& from, const StoredPart& part, const Shape& shape);
/// One of our parameters, put together from its parts, as numbers of a type. Throws
/// std::runtime_error if one is missing or has another shape.
Tensor gather(const StoredTensors& from, const std::vector<StoredPart>& parts, const Shape& shape,
              const ModelConfig& config, Type type = Type::f32);
/// The reverse: a part of a parameter as its family stores it, f32.
Tensor scatter(const Tensor& parameter, const StoredPart& part, const ModelConfig& config);

}  // namespace rapt
