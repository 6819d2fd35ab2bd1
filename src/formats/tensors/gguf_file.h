#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/io/files.h"
#include "formats/tensors/gguf_header.h"

namespace rapt::detail {

/// A GGUF file, which is trusted in nothing. Opening reads the header only, so it takes no longer
/// for a larger file; numbers are read when asked for. Throws std::runtime_error.
class GgufFile {
 public:
  explicit GgufFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const GgufMetadata& metadata() const { return header_.metadata; }
  /// In ascending order of names.
  std::span<const GgufTensor> tensors() const { return header_.tensors; }
  /// Null if there is none.
  const GgufTensor* find(std::string_view name) const;

  /// The numbers as f32, of every type with a GgmlType.
  Tensor read(std::string_view name) const;
  /// Bytes of a tensor as they are, from the given one on.
  void read_bytes(const GgufTensor& tensor, Index first, std::span<std::byte> to) const;

 private:
  InputFile file_;
  GgufHeader header_;
};

/// Throws std::runtime_error if rapt does not read the type of the tensor.
void check_readable(const std::string& path, const GgufTensor& tensor);

}  // namespace rapt::detail
