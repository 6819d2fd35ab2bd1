#pragma once

#include <memory>
#include <string>
#include <vector>

#include "formats/config/json.h"

namespace rapt {

/// One change of the tokens of a text on their way back to text.
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
  /// with `source`, for what is not understood.
  Decoder(const Json& part, const std::string& source);

  /// Without any step tokens are words, with a space between them. The text of byte tokens may be
  /// invalid UTF-8 where their bytes are.
  std::string text(std::vector<std::string> tokens) const;

 private:
  std::vector<std::shared_ptr<const DecoderStep>> steps_;
  bool words_ = true;
};

}  // namespace rapt
