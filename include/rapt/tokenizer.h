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

/// The tokens of one text or of a pair.
struct Encoding {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> types;  // one per id: which text it belongs to, as models like BERT ask
};

struct EncodeOptions {
  /// The special tokens around texts that the model was trained with, such as [CLS] and [SEP].
  bool frame = true;
  /// Special tokens that are spelled out in the text become those tokens. Not for what strangers
  /// write.
  bool special = false;
};

struct DecodeOptions {
  bool special = false;  // special tokens are spelled out; otherwise they give nothing
};

/// Tokens that stand for no text, as far as a tokenizer has them.
struct SpecialTokens {
  std::optional<std::int32_t> unknown = {}, begin = {}, end = {}, padding = {};
  std::optional<std::int32_t> classify = {}, separator = {}, mask = {};
};

/// Text to numbers and back: bytes, byte-level BPE, BPE, WordPiece, Unigram. Cheap to copy; every
/// function may be called from several threads.
///
/// Text is UTF-8. A byte that is not becomes a token of its own in byte-level tokenizers and
/// U+FFFD in all others. What has no token is the unknown one; if there is none either it is lost,
/// as SmolLM2 loses a few controls.
class RAPT_API Tokenizer {
 public:
  /// Every byte is a token, 0 to 255; 256 ends a text, 257 fills up. No text is foreign to it.
  static Tokenizer bytes();
  /// Byte-level BPE learnt from texts: 256 bytes, then the most frequent pairs, `entries` in all
  /// with the two special tokens. The same texts give the same tokenizer. `pause` is called now and
  /// then; what it throws ends the learning.
  static Tokenizer learn(std::span<const std::string> texts, Index entries,
                         const std::function<void()>& pause = {});
  /// A tokenizer.json; read_pretrained_tokenizer() takes whole models. Throws std::runtime_error if
  /// the file is not one that is understood.
  static Tokenizer read(const std::string& path);
  /// Writes a tokenizer.json that others read too.
  void write(const std::string& path) const;

  /// Ids lie below this.
  Index entries() const;
  /// The tokens of the text alone.
  std::vector<std::int32_t> encode(std::string_view text) const;
  Encoding encode(std::string_view text, const EncodeOptions& options) const;
  Encoding encode_pair(std::string_view first, std::string_view second,
                       const EncodeOptions& options = {}) const;
  /// decode(encode(text)) == text for byte-level tokenizers that do not normalize.
  std::string decode(std::span<const std::int32_t> ids, const DecodeOptions& options = {}) const;

  /// The bytes of one token of a byte-level tokenizer, which may be part of a character, and the
  /// spelling of any other; empty for a special one.
  std::string bytes_of(std::int32_t id) const;
  /// A token as files spell it: "##ing", "\u0120the", "[CLS]".
  std::string spelling_of(std::int32_t id) const;
  /// By spelling, and by bytes where tokens are bytes.
  std::optional<std::int32_t> id_of(std::string_view token) const;

  const SpecialTokens& special() const;
  std::optional<std::int32_t> end() const;      // ends a text
  std::optional<std::int32_t> padding() const;  // fills up

  struct Body;

 private:
  explicit Tokenizer(std::shared_ptr<const Body> body) : body_(std::move(body)) {}
  std::shared_ptr<const Body> body_;
};

/// Text from tokens that come one at a time, as when a model writes. Never half a character; what
/// is handed out is final, and all of it together is decode() of all ids; only where tokens of
/// single bytes in a row are no UTF-8 may decode() take back what was a character before.
class RAPT_API TextStream {
 public:
  explicit TextStream(Tokenizer tokenizer, const DecodeOptions& options = {});
  /// The text that is certain now and was not before; empty if a character is not finished.
  std::string add(std::int32_t id);
  /// What is left, be it half a character.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  DecodeOptions options_;
  std::vector<std::int32_t> ids_;  // since some place whose text has been handed out
  std::size_t said_ = 0;           // how many of them have
  std::string text_;               // of those
};

}  // namespace rapt
