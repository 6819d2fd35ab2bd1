#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/config/json.h"

namespace rapt {

/// Text on its way through a normalizer.
struct NormalText {
  std::string text;
  std::size_t front = 0;  // bytes at the beginning that come from the original's first character
  std::size_t most = std::string::npos;  // bytes that it may become

  /// Throws std::runtime_error where that would be too many.
  void add(std::string_view bytes);
};

/// One change of text, valid UTF-8 to valid UTF-8.
class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  virtual NormalText run(NormalText in) const = 0;
};

/// What is done to text before it is cut: a list of steps, none for most byte-level tokenizers.
class Normalizer {
 public:
  Normalizer() = default;
  /// The "normalizer" of a tokenizer.json, which may be null. Throws std::runtime_error, beginning
  /// with `source`, for what is not understood.
  Normalizer(const Json& part, const std::string& source);

  bool empty() const { return steps_.empty(); }
  NormalText run(std::string_view text) const;

 private:
  std::vector<std::shared_ptr<const NormalizerStep>> steps_;
};

}  // namespace rapt
