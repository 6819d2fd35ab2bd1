#pragma once

#include <string>
#include <string_view>

namespace rapt::detail {

// What tokenizers ask about characters. Where the Unicode version that others build with gives
// another answer than ours, theirs is taken: unicode.cpp says which.

/// Unicode's White_Space.
bool is_space(char32_t code);
/// Controls, formats, private use and what is not assigned.
bool is_control(char32_t code);
bool is_punctuation(char32_t code);
/// Decimal digits and every other number.
bool is_numeric(char32_t code);
/// Letters, marks, decimal digits and connectors: \w.
bool is_word(char32_t code);
/// Any mark; marks that take no room of their own.
bool is_mark(char32_t code);
bool is_accent(char32_t code);
/// A CJK ideograph, as BERT understands it.
bool is_ideograph(char32_t code);

/// Adds the lower case, which may be several characters.
void append_lower(std::string& text, char32_t code);

enum class Form { nfc, nfd, nfkc, nfkd };
/// Unicode's normal forms of valid UTF-8.
std::string normal_form(std::string_view text, Form form);

/// How many bytes at the beginning of a valid text are one grapheme cluster.
std::size_t grapheme_length(std::string_view text);

}  // namespace rapt::detail
