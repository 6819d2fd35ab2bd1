#include "rapt/tokenizer.h"

#include <algorithm>

#include "base/check.h"
#include "base/input.h"
#include "formats/byte_letters.h"
#include "formats/json.h"
#include "formats/tokenizer_body.h"

namespace rapt {
namespace {

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

std::int64_t Tokenizer::Body::rank_of(std::int32_t left, std::int32_t right) const {
  const auto found = ranks.find(pair_key(left, right));
  return found == ranks.end() ? -1 : static_cast<std::int64_t>(found->second);
}

void Tokenizer::Body::index_tokens(const std::string& source) {
  ids.reserve(tokens.size());
  byte_ids.fill(-1);
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const auto& [bytes, kind] = tokens[id];
    if (!ids.emplace(bytes, static_cast<std::int32_t>(id)).second)
      fail_input(source, ": token ", printable(letters_of(bytes)), " has two ids, the second is ",
                 id);
    const std::size_t first = bytes.empty() ? 0 : static_cast<std::uint8_t>(bytes[0]);
    if (kind == TokenKind::piece && bytes.size() == 1)
      byte_ids[first] = static_cast<std::int32_t>(id);
    if (kind != TokenKind::added) continue;
    added_begins[first] = true;
    added_lengths.push_back(bytes.size());
  }
  std::sort(added_lengths.begin(), added_lengths.end(), std::greater<>());
  added_lengths.erase(std::unique(added_lengths.begin(), added_lengths.end()), added_lengths.end());
  for (std::size_t byte = 0; byte < 256; ++byte)
    check_input(byte_ids[byte] >= 0, source, ": no token for byte ", byte);
  ranks.reserve(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank)
    check_input(ranks.emplace(pair_key(merges[rank].left, merges[rank].right), rank).second, source,
                ": merge ", rank, " occurs twice");
}

std::shared_ptr<Tokenizer::Body> byte_body() {
  auto body = std::make_shared<Tokenizer::Body>();
  for (int byte = 0; byte < 256; ++byte)
    body->tokens.push_back({std::string(1, static_cast<char>(byte)), TokenKind::piece});
  return body;
}

Tokenizer finished(std::shared_ptr<Tokenizer::Body> body) {
  body->end = static_cast<std::int32_t>(body->tokens.size());
  body->padding = *body->end + 1;
  body->tokens.push_back({end_name, TokenKind::special});
  body->tokens.push_back({padding_name, TokenKind::special});
  body->index_tokens("tokenizer");
  return Tokenizer::Body::made(std::move(body));
}

Tokenizer Tokenizer::bytes() { return finished(byte_body()); }

Index Tokenizer::entries() const { return static_cast<Index>(body_->tokens.size()); }

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  return body_->encode(text);
}

std::string Tokenizer::bytes_of(std::int32_t id) const {
  check(id >= 0 && id < entries(), "tokenizer: id ", id, ", expected 0 to ", entries() - 1);
  const Body::Token& token = body_->tokens[static_cast<std::size_t>(id)];
  return token.kind == TokenKind::special ? "" : token.bytes;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) {
    check(id >= 0 && id < entries(), "tokenizer: id ", id, ", expected 0 to ", entries() - 1);
    const Body::Token& token = body_->tokens[static_cast<std::size_t>(id)];
    if (token.kind != TokenKind::special) text += token.bytes;
  }
  return text;
}

std::optional<std::int32_t> Tokenizer::end() const { return body_->end; }
std::optional<std::int32_t> Tokenizer::padding() const { return body_->padding; }

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  const auto found = body_->ids.find(token);
  if (found == body_->ids.end()) return std::nullopt;
  return found->second;
}

}  // namespace rapt
