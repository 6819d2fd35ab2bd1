#pragma once

#include "families/family.h"
#include "formats/tensors/gguf_file.h"
#include "rapt/models/pretrained.h"

namespace rapt::detail {

/// Values of a GGUF file below a name: "llama.block_count". Whatever does not fit throws
/// std::runtime_error with the file, the key and what was expected.
class GgufSection {
 public:
  GgufSection(const GgufFile& file, std::string name) : file_(file), name_(std::move(name)) {}

  const GgufFile& file() const { return file_; }
  const std::string& name() const { return name_; }
  std::string key(const char* of) const { return name_ + "." + of; }
  bool has(const char* of) const { return file_.metadata().has(key(of)); }
  Index integer(const char* of, Bounds<Index> range) const;
  Index integer(const char* of, Bounds<Index> range, Index otherwise) const;
  double number(const char* of, double otherwise, Bounds<double> range = {}) const;
  /// A number that was rounded to f32 when written, in the fewest digits that identify it: 1e-12
  /// and not 9.99999996e-13.
  double decimal(const char* of, Bounds<double> range) const;
  bool boolean(const char* of) const { return file_.metadata().boolean(key(of)); }
  /// Refuses a number that is present with another value, which rapt does not implement.
  void must_be(const char* of, double value) const;

 private:
  const GgufFile& file_;
  std::string name_;
};

/// Rows of the embedding.
Index gguf_vocabulary(const GgufFile& file);
/// Sizes of a model with learned positions whose heads all have keys of their own.
void read_gguf_sizes(const GgufSection& section, ModelConfig& config);

/// An architecture of GGUF files: how its keys and its tensors read.
struct GgufArchitecture {
  const char* name;
  ModelConfig (*read)(const GgufSection& section);
  std::vector<NameRow> (*names)();
  /// How rows become a vector for a text; null: the model does not embed texts.
  Pooling (*pooling)(const GgufSection& section) = nullptr;
  /// Name prefixes of tensors that would change the numbers: one of them that is not read is
  /// refused; any other gives a warning.
  std::vector<std::string> refused = {};
};

// One for each general.architecture.
GgufArchitecture gguf_llama();
GgufArchitecture gguf_qwen2();
GgufArchitecture gguf_qwen3();
GgufArchitecture gguf_bert();
GgufArchitecture gguf_gpt2();

}  // namespace rapt::detail
