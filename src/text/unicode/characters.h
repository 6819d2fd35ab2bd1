#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace rapt::detail {

// Walking through text that is known to be valid UTF-8.

struct Character {
  char32_t code;
  std::size_t length;  // in bytes
};

/// The first character of a valid text that is not empty.
inline Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[i]));
  };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0xF) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 7) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

/// The last character of a valid text that is not empty.
inline Character last_character(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while ((static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return first_character(text.substr(begin));
}

inline void append_character(std::string& text, char32_t code) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6), put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12), put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18), put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F));
  }
}

/// Calls visit(code, bytes of the character).
template <class Visit>
void for_each_character(std::string_view text, const Visit& visit) {
  while (!text.empty()) {
    const Character next = first_character(text);
    visit(next.code, text.substr(0, next.length));
    text.remove_prefix(next.length);
  }
}

inline constexpr char32_t replacement_character = 0xFFFD;

/// How far the text is valid UTF-8.
std::size_t valid_length(std::string_view text);
/// Valid UTF-8: every byte that belongs to no character becomes U+FFFD.
std::string repaired(std::string_view text);
/// How many bytes at the end are the beginning of a character whose rest is missing.
std::size_t unfinished_length(std::string_view text);

}  // namespace rapt::detail
