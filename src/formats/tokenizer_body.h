#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/word_cutter.h"
#include "rapt/tokenizer.h"

namespace rapt {

/// Two tokens that become one.
struct Merge {
  std::int32_t left, right, result;
};

enum class TokenKind : std::uint8_t {
  piece,    // of text
  added,    // a word that is found before the text is cut
  special,  // stands for no text
};

struct Tokenizer::Body {
  struct Token {
    std::string bytes;  // of a special token its name
    TokenKind kind = TokenKind::piece;
  };
  std::vector<Token> tokens;  // by id
  std::vector<Merge> merges;  // the first goes before the second
  WordCutter cutter{Cut::gpt2};
  bool whole_words = false;  // a word that is a token is not taken apart
  std::optional<std::int32_t> end, padding;

  // What follows is found by index_tokens().
  std::unordered_map<std::string_view, std::int32_t> ids;  // by bytes, every kind
  std::unordered_map<std::uint64_t, std::uint32_t> ranks;  // pair: index into merges
  std::array<std::int32_t, 256> byte_ids{};
  std::vector<std::size_t> added_lengths;  // descending, each once
  std::array<bool, 256> added_begins{};    // by first byte

  /// Throws std::runtime_error, beginning with `source`, if two tokens are the same, a byte has
  /// none or a merge comes twice.
  void index_tokens(const std::string& source);
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// -1 if the pair is none.
  std::int64_t rank_of(std::int32_t left, std::int32_t right) const;

  static Tokenizer made(std::shared_ptr<Body> body) { return Tokenizer(std::move(body)); }
};

inline constexpr const char* end_name = "<|endoftext|>";
inline constexpr const char* padding_name = "<|padding|>";
inline constexpr Index max_entries = 10'000'000;

/// A body with the 256 bytes and nothing else.
std::shared_ptr<Tokenizer::Body> byte_body();
/// Adds the two special tokens and finds what is derived.
Tokenizer finished(std::shared_ptr<Tokenizer::Body> body);

}  // namespace rapt
