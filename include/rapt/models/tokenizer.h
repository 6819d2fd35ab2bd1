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
  std::vector<std::int32_t> type_ids;  // one per id: which text it belongs to (BERT and its kin)
};

struct EncodeOptions {
  /// Add the special tokens around a text that the model was trained with, such as [CLS] and [SEP].
  bool add_special_tokens = true;
  /// Special tokens spelled out in the text become those tokens. Leave it off for untrusted text.
  bool parse_special = false;
};

struct DecodeOptions {
  bool skip_special_tokens = true;  // otherwise they are spelled out
};

/// Special tokens by their role, as far as the tokenizer has them.
struct SpecialTokens {
  std::optional<std::int32_t> unk = {}, bos = {}, eos = {}, pad = {}, cls = {}, sep = {}, mask = {};
};

/// Text to token ids and back: bytes, byte-level BPE, BPE, WordPiece, Unigram. Cheap to copy; every
/// function may be called from several threads.
///
/// Text is UTF-8. An invalid byte becomes a token of its own in byte-level tokenizers and U+FFFD in
/// all others. Text without a token becomes `unk`; a tokenizer that has no `unk` drops it, as
/// SmolLM2's drops a few control characters.
class RAPT_API Tokenizer {
 public:
  /// Every byte is a token, 0 to 255; 256 is eos, 257 pad. It encodes any text.
  static Tokenizer bytes();
  /// Trains byte-level BPE: 256 bytes, then the most frequent pairs, then eos and pad, `vocab_size`
  /// tokens in all. The same texts give the same tokenizer. `cancel_check` is called now and then;
  /// an exception that it throws ends the training.
  static Tokenizer train(std::span<const std::string> texts, Index vocab_size,
                         const std::function<void()>& cancel_check = {});
  /// Loads a tokenizer.json; load_tokenizer() takes folders and GGUF files too. Throws
  /// std::runtime_error if the file is damaged or not supported.
  static Tokenizer load(const std::string& path);
  /// Writes a tokenizer.json that other libraries read too.
  void save(const std::string& path) const;

  /// Ids are below this.
  Index vocab_size() const;
  Encoding encode(std::string_view text, const EncodeOptions& options = {}) const;
  Encoding encode_pair(std::string_view first, std::string_view second,
                       const EncodeOptions& options = {}) const;
  /// decode(encode(text)) == text for byte-level tokenizers that do not normalize.
  std::string decode(std::span<const std::int32_t> ids, const DecodeOptions& options = {}) const;

  /// The bytes of one token of a byte-level tokenizer, which may be part of a character, and the
  /// spelling of any other token; empty for a special one.
  std::string token_bytes(std::int32_t id) const;
  /// A token as files spell it: "##ing", "\u0120the", "[CLS]".
  std::string id_to_token(std::int32_t id) const;
  /// By spelling; in byte-level tokenizers also by bytes.
  std::optional<std::int32_t> token_to_id(std::string_view token) const;

  const SpecialTokens& special_tokens() const;
  std::optional<std::int32_t> eos() const;
  std::optional<std::int32_t> pad() const;

  struct Impl;

 private:
  friend struct detail::Access;
  explicit Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

/// Decodes ids that come one at a time, as when a model writes. Gives whole characters only, and
/// never takes text back: all of it together is decode() of all ids. One exception: where byte
/// tokens in a row are no UTF-8, decode() of all may differ in the characters before them.
class RAPT_API DecodeStream {
 public:
  explicit DecodeStream(Tokenizer tokenizer, const DecodeOptions& options = {});
  /// The text that this id completes; empty while a character is incomplete.
  std::string step(std::int32_t id);
  /// The rest, even if it is part of a character.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  DecodeOptions options_;
  std::vector<std::int32_t> ids_;  // the last ones; the text of the first `emitted_` is given out
  std::size_t emitted_ = 0;
  std::string text_;  // of those
};

}  // namespace rapt
