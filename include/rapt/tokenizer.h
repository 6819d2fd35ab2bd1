#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/tensor.h"

namespace rapt {

/// Text to numbers and back. Cheap to copy.
class RAPT_API Tokenizer {
 public:
  /// Every byte is a token, 0 to 255; 256 ends a text, 257 fills up. No text is foreign to it.
  static Tokenizer bytes();
  /// Byte-level BPE learnt from texts: 256 bytes, then the most frequent pairs, `entries` in all
  /// with the two special tokens. The same texts give the same tokenizer. `pause` is called now and
  /// then; what it throws ends the learning.
  static Tokenizer learn(std::span<const std::string> texts, Index entries,
                         const std::function<void()>& pause = {});
  /// A tokenizer.json. Throws std::runtime_error if the file is not one that is understood.
  static Tokenizer read(const std::string& path);
  /// Writes a tokenizer.json that others read too.
  void write(const std::string& path) const;

  /// Ids lie below this.
  Index entries() const;
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// decode(encode(text)) == text for byte-level tokenizers. Special tokens give nothing.
  std::string decode(std::span<const std::int32_t> ids) const;
  /// The bytes of one token, which may be part of a character; empty for a special one.
  std::string bytes_of(std::int32_t id) const;
  std::optional<std::int32_t> end() const;      // ends a text
  std::optional<std::int32_t> padding() const;  // fills up
  std::optional<std::int32_t> id_of(std::string_view token) const;

  struct Body;

 private:
  explicit Tokenizer(std::shared_ptr<const Body> body) : body_(std::move(body)) {}
  std::shared_ptr<const Body> body_;
};

}  // namespace rapt
