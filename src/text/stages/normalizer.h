#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/config/json.h"

namespace rapt::detail {

/// Text between two steps of a normalizer.
struct NormalText {
  std::string text;
  std::size_t front = 0;  // bytes at the beginning that come from the original's first character
  std::size_t most = std::string::npos;  // limit in bytes

  /// Throws std::runtime_error beyond the limit.
  void add(std::string_view bytes);
};

/// Valid UTF-8 to valid UTF-8.
class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  virtual NormalText run(NormalText in) const = 0;
};

/// Changes text before it is split: a list of steps, none for most byte-level tokenizers.
class Normalizer {
 public:
  Normalizer() = default;
  /// The "normalizer" of a tokenizer.json, which may be null. Throws std::runtime_error, beginning
  /// with `source`, for what is not supported.
  Normalizer(const Json& part, const std::string& source);

  bool empty() const { return steps_.empty(); }
  NormalText run(std::string_view text) const;

 private:
  std::vector<std::shared_ptr<const NormalizerStep>> steps_;
};

}  // namespace rapt::detail
