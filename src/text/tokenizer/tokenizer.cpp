#include "rapt/tokenizer.h"

#include <algorithm>

#include "base/check.h"
#include "text/stages/byte_letters.h"
#include "text/tokenizer/tokenizer_impl.h"
#include "text/unicode/characters.h"

namespace rapt {

Tokenizer Tokenizer::bytes() { return finished(byte_body()); }

Index Tokenizer::entries() const { return static_cast<Index>(body_->tokens.size()); }

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  return body_->encode(text, {});
}

Encoding Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  return body_->frame.of(body_->encode(text, options), options.frame);
}

Encoding Tokenizer::encode_pair(std::string_view first, std::string_view second,
                                const EncodeOptions& options) const {
  return body_->frame.of(body_->encode(first, options), body_->encode(second, options),
                         options.frame);
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids,
                              const DecodeOptions& options) const {
  return body_->decode(ids, options);
}

std::string Tokenizer::spelling_of(std::int32_t id) const {
  check(id >= 0 && id < entries(), "tokenizer: id ", id, ", expected 0 to ", entries() - 1);
  return body_->spelling(id);
}

std::string Tokenizer::bytes_of(std::int32_t id) const {
  check(id >= 0 && id < entries(), "tokenizer: id ", id, ", expected 0 to ", entries() - 1);
  const Body::Token& token = body_->tokens[static_cast<std::size_t>(id)];
  return token.kind == TokenKind::special ? "" : token.bytes;
}

const SpecialTokens& Tokenizer::special() const { return body_->special; }
std::optional<std::int32_t> Tokenizer::end() const { return body_->special.end; }
std::optional<std::int32_t> Tokenizer::padding() const { return body_->special.padding; }

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  const auto added = body_->added_ids.find(token);
  if (added != body_->added_ids.end()) return added->second;
  const auto found = body_->ids.find(token);
  if (found != body_->ids.end()) return found->second;
  if (!body_->byte_tokens) return std::nullopt;
  const auto bytes = bytes_of_letters(token);
  const auto spelled = bytes ? body_->ids.find(*bytes) : body_->ids.end();
  if (spelled != body_->ids.end()) return spelled->second;
  return std::nullopt;
}

TextStream::TextStream(Tokenizer tokenizer, const DecodeOptions& options)
    : tokenizer_(std::move(tokenizer)), options_(options) {}

std::string TextStream::add(std::int32_t id) {
  constexpr std::string_view replacement = "\uFFFD";
  if (!options_.special && tokenizer_.bytes_of(id).empty()) return "";
  ids_.push_back(id);
  std::string text = tokenizer_.decode(ids_, options_);
  // U+FFFD may be a byte token that waits for the others of its character, but not for ever.
  constexpr std::size_t longest_wait = 32;
  const bool waits = ids_.size() - said_ < longest_wait &&
                     (unfinished_length(text) > 0 || text.ends_with(replacement));
  if (waits) return "";
  std::string fresh = text.substr(std::min(text_.size(), text.size()));
  // The last tokens stay: what a decoder makes of a token depends on whether it is the first. So
  // does the first, even if it gives no text, as a space that decoders leave out there.
  std::vector<std::int32_t> last(ids_.begin() + static_cast<std::ptrdiff_t>(said_), ids_.end());
  if (std::string last_text = tokenizer_.decode(last, options_); !last_text.empty()) {
    ids_ = std::move(last);
    text = std::move(last_text);
  } else if (fresh.empty() && said_ > 0) {  // or a long run of them would be decoded for each
    ids_.resize(said_);
    return fresh;
  }
  said_ = ids_.size();
  text_ = std::move(text);
  return fresh;
}

std::string TextStream::finish() {
  const std::string text = tokenizer_.decode(ids_, options_);
  std::string rest = text.substr(std::min(text_.size(), text.size()));
  ids_.clear();
  said_ = 0;
  text_.clear();
  return rest;
}

}  // namespace rapt
