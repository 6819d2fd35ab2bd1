#pragma once

#include <memory>
#include <string>
#include <vector>

#include "formats/config/json.h"

namespace rapt::detail {

/// Changes the spellings of tokens before they are joined.
class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  virtual void run(std::vector<std::string>& tokens) const = 0;
};

/// From the spellings of tokens to text.
class Decoder {
 public:
  Decoder() = default;
  /// The "decoder" of a tokenizer.json, which may be null. Throws std::runtime_error, beginning
  /// with `source`, for what is not supported.
  Decoder(const Json& part, const std::string& source);

  /// Without any step, tokens are words joined by spaces. Byte tokens may give invalid UTF-8.
  std::string text(std::vector<std::string> tokens) const;

 private:
  std::vector<std::shared_ptr<const DecoderStep>> steps_;
  bool words_ = true;
};

}  // namespace rapt::detail
