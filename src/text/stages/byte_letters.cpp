#include "text/stages/byte_letters.h"

#include <utf8proc.h>

#include <array>

namespace rapt::detail {
namespace {

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr char32_t first_other = 0x100;
constexpr std::size_t letters_end = 0x144;  // 68 bytes do not stand for themselves

constexpr auto letters_of_bytes = [] {
  std::array<char32_t, 256> table{};
  char32_t other = first_other;
  for (unsigned byte = 0; byte < 256; ++byte)
    table[byte] = stands_for_itself(byte) ? static_cast<char32_t>(byte) : other++;
  return table;
}();

constexpr auto bytes = [] {
  std::array<int, letters_end> table{};
  for (int& byte : table) byte = -1;
  for (int byte = 0; byte < 256; ++byte)
    table[letters_of_bytes[static_cast<std::size_t>(byte)]] = byte;
  return table;
}();

}  // namespace

char32_t letter_of(std::uint8_t byte) { return letters_of_bytes[byte]; }

std::string letters_of(std::string_view text) {
  std::string result;
  for (const char byte : text) {
    const char32_t letter = letter_of(static_cast<std::uint8_t>(byte));
    if (letter < 0x80) {
      result += static_cast<char>(letter);
    } else {
      result += static_cast<char>(0xC0 | letter >> 6);
      result += static_cast<char>(0x80 | (letter & 0x3F));
    }
  }
  return result;
}

std::optional<std::string> bytes_of_letters(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const auto* at = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
    utf8proc_int32_t letter = -1;
    const utf8proc_ssize_t length =
        utf8proc_iterate(at, static_cast<utf8proc_ssize_t>(text.size()), &letter);
    const bool known = length > 0 && letter >= 0 && static_cast<std::size_t>(letter) < letters_end;
    if (!known || bytes[static_cast<std::size_t>(letter)] < 0) return std::nullopt;
    result += static_cast<char>(bytes[static_cast<std::size_t>(letter)]);
    text.remove_prefix(static_cast<std::size_t>(length));
  }
  return result;
}

std::size_t valid_character(std::string_view text) {
  if (text.empty()) return 0;
  if (static_cast<unsigned char>(text[0]) < 0x80) return 1;
  utf8proc_int32_t letter = -1;
  const utf8proc_ssize_t length =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                       static_cast<utf8proc_ssize_t>(text.size()), &letter);
  return length > 0 ? static_cast<std::size_t>(length) : 0;
}

}  // namespace rapt::detail
