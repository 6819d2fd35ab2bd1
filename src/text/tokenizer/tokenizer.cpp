#include "rapt/models/tokenizer.h"

#include <algorithm>

#include "base/check.h"
#include "text/stages/byte_letters.h"
#include "text/tokenizer/tokenizer_impl.h"
#include "text/unicode/characters.h"

namespace rapt {
using namespace detail;

Tokenizer Tokenizer::bytes() { return finished(byte_impl()); }

Index Tokenizer::vocab_size() const { return static_cast<Index>(impl_->tokens.size()); }

Encoding Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  return impl_->post_processor.single(impl_->encode(text, options), options.add_special_tokens);
}

Encoding Tokenizer::encode_pair(std::string_view first, std::string_view second,
                                const EncodeOptions& options) const {
  return impl_->post_processor.pair(impl_->encode(first, options), impl_->encode(second, options),
                                    options.add_special_tokens);
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids,
                              const DecodeOptions& options) const {
  return impl_->decode(ids, options);
}

std::string Tokenizer::id_to_token(std::int32_t id) const {
  check(id >= 0 && id < vocab_size(), "tokenizer: id ", id, ", expected 0 to ", vocab_size() - 1);
  return impl_->spelling(id);
}

std::string Tokenizer::token_bytes(std::int32_t id) const {
  check(id >= 0 && id < vocab_size(), "tokenizer: id ", id, ", expected 0 to ", vocab_size() - 1);
  const Impl::Token& token = impl_->tokens[id];
  return token.kind == TokenKind::special ? "" : token.bytes;
}

const SpecialTokens& Tokenizer::special_tokens() const { return impl_->special; }
std::optional<std::int32_t> Tokenizer::eos() const { return impl_->special.eos; }
std::optional<std::int32_t> Tokenizer::pad() const { return impl_->special.pad; }

std::optional<std::int32_t> Tokenizer::token_to_id(std::string_view token) const {
  const auto added = impl_->added_ids.find(token);
  if (added != impl_->added_ids.end()) return added->second;
  const auto found = impl_->ids.find(token);
  if (found != impl_->ids.end()) return found->second;
  if (!impl_->byte_tokens) return std::nullopt;
  const auto bytes = bytes_of_letters(token);
  const auto spelled = bytes ? impl_->ids.find(*bytes) : impl_->ids.end();
  if (spelled != impl_->ids.end()) return spelled->second;
  return std::nullopt;
}

DecodeStream::DecodeStream(Tokenizer tokenizer, const DecodeOptions& options)
    : tokenizer_(std::move(tokenizer)), options_(options) {}

std::string DecodeStream::step(std::int32_t id) {
  constexpr std::string_view replacement = "\uFFFD";
  if (options_.skip_special_tokens && tokenizer_.token_bytes(id).empty()) return "";
  ids_.push_back(id);
  std::string text = tokenizer_.decode(ids_, options_);
  // U+FFFD may be a byte token that waits for the rest of its character; the wait is bounded.
  constexpr std::size_t longest_wait = 32;
  const bool waits = ids_.size() - emitted_ < longest_wait &&
                     (unfinished_length(text) > 0 || text.ends_with(replacement));
  if (waits) return "";
  std::string fresh = text.substr(std::min(text_.size(), text.size()));
  // Keep the last tokens: decoders treat the first token of a text differently. Keep the first one
  // even if it gives no text, such as a space that decoders drop there.
  std::vector<std::int32_t> last(ids_.begin() + static_cast<std::ptrdiff_t>(emitted_), ids_.end());
  if (std::string last_text = tokenizer_.decode(last, options_); !last_text.empty()) {
    ids_ = std::move(last);
    text = std::move(last_text);
  } else if (fresh.empty() && emitted_ > 0) {  // or a long run of them is decoded for each
    ids_.resize(emitted_);
    return fresh;
  }
  emitted_ = ids_.size();
  text_ = std::move(text);
  return fresh;
}

std::string DecodeStream::finish() {
  const std::string text = tokenizer_.decode(ids_, options_);
  std::string rest = text.substr(std::min(text_.size(), text.size()));
  ids_.clear();
  emitted_ = 0;
  text_.clear();
  return rest;
}

}  // namespace rapt
