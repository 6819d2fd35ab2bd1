#pragma once

#include <functional>
#include <string>
#include <vector>

#include "families/family.h"

namespace rapt::detail {

/// The tensors of one or several files of any format.
struct StoredTensors {
  std::string source;              // its name in messages
  std::vector<std::string> names;  // ascending
  /// The shape of a tensor; empty if there is no such tensor.
  std::function<std::vector<Index>(const std::string& name)> shape;
  std::function<Tensor(const std::string& name)> read;
  /// The type of an existing tensor: bf16, f16, or f32 for everything else.
  std::function<Type(const std::string& name)> type;
  /// The size of an existing tensor.
  std::function<Index(const std::string& name)> bytes;
  bool finite = true;      // refuse infinite and NaN numbers
  double extra_bytes = 0;  // memory of more weights of the model, such as dense layers

  bool has(const std::string& name) const;
};

/// Throws std::runtime_error if a part of a parameter is missing or has another shape.
void check_part(const StoredTensors& from, const StoredPart& part, const Shape& shape);
/// Assembles a parameter from its parts, as numbers of a type. Throws std::runtime_error if one is
/// missing or has another shape.
Tensor gather(const StoredTensors& from, const std::vector<StoredPart>& parts, const Shape& shape,
              const ModelConfig& config, Type type = Type::f32);
/// The reverse: a part of a parameter as its family stores it, f32.
Tensor scatter(const Tensor& parameter, const StoredPart& part, const ModelConfig& config);

}  // namespace rapt::detail
