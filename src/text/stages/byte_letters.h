#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rapt::detail {

// Byte-level tokenizer files write bytes as letters, so that every token is text: printable bytes
// of Latin-1 stand for themselves, the others for U+0100, U+0101 and so on in ascending order.

/// The code point that stands for a byte.
char32_t letter_of(std::uint8_t byte);
/// Bytes as UTF-8 letters.
std::string letters_of(std::string_view bytes);
/// Nothing if there is a letter in it that stands for no byte.
std::optional<std::string> bytes_of_letters(std::string_view letters);

/// How many bytes at the beginning of the text are one valid UTF-8 character; 0 if none is there.
std::size_t valid_character(std::string_view text);

}  // namespace rapt::detail
