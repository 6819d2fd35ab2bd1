#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/files.h"
#include "rapt/tensor.h"

namespace rapt::detail {

/// What a file says of one tensor; checked, so that the bytes are there and are as many as the
/// shape needs.
struct StoredTensor {
  std::string name;
  std::string type;  // as the file spells it: "F32", "BF16", "F16", "I64", ...
  std::vector<Index> shape;
  Index offset = 0;  // of the first byte, from the beginning of the file
  Index bytes = 0;
};

/// A safetensors file, which is trusted in nothing. Opening reads the header only: at most 100 MB,
/// a million tensors, eight axes, no overlaps and no bytes that belong to no tensor. Numbers are
/// read from the file on request, wherever they are in it; nothing is mapped, so a file that
/// shrinks is an error and not a signal. Throws std::runtime_error.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  /// In ascending order of names.
  std::span<const StoredTensor> tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// Null if there is none.
  const StoredTensor* find(std::string_view name) const;
  /// The numbers as they are: f32, bf16 or f16. A scalar is [1].
  Tensor read(std::string_view name) const;

 private:
  InputFile file_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// The tensors of a model: one file, or a folder with model.safetensors, or with several files and
/// model.safetensors.index.json. A single file takes precedence over an index. Throws
/// std::runtime_error.
class Weights {
 public:
  explicit Weights(const std::string& path);
  /// The weights of a subfolder of a model. Links may lead to the model's folder.
  Weights(const std::string& path, const std::string& model_folder);

  /// In ascending order.
  std::vector<std::string> names() const;
  const StoredTensor* find(std::string_view name) const;
  Tensor read(std::string_view name) const;
  /// The metadata of the first file.
  const std::map<std::string, std::string>& metadata() const { return files_.front().metadata(); }
  /// Warnings for the user.
  const std::vector<std::string>& notices() const { return notices_; }

 private:
  void open_folder(const std::string& folder);
  void open_shards(const std::string& folder);

  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t, std::less<>> places_;  // name: index into files_
  std::vector<std::string> notices_;
  std::string path_, model_folder_;
};

/// A tensor on its way into a file: row-major.
struct NamedTensor {
  std::string name;
  AnyView numbers;
};

/// Writes a new file and brings it to the disk: numbers start at a multiple of 64 bytes, f32 before
/// the smaller types, otherwise in the order given. Throws std::invalid_argument on a name that
/// comes twice, a tensor without axes or one that is not row-major; std::runtime_error if the path
/// exists or the file cannot be written.
FileDigest write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                             const std::map<std::string, std::string>& metadata = {});

/// How many numbers are infinite or NaN.
Index count_non_finite(const Tensor& tensor);

}  // namespace rapt::detail
