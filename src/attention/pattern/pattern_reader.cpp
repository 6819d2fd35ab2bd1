#include "attention/pattern/pattern_reader.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/sizes.h"

namespace rapt::detail {

namespace {

// Not <cctype>: the meaning of a pattern must not depend on the locale.
bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_printable(char c) { return c >= ' ' && c <= '~'; }

std::string hex_byte(char c) {
  constexpr std::string_view digits = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  return {'0', 'x', digits[byte / 16], digits[byte % 16]};
}

std::size_t word_length(std::string_view text) {
  if (text.empty()) return 0;
  const auto is_word = [](char c) { return is_letter(c) || is_digit(c); };
  const auto first = text.begin() + (text[0] == '-' ? 1 : 0);
  return to_size(std::find_if_not(first, text.end(), is_word) - text.begin());
}

/// The text around a column and a caret below it; one character per byte, so that the caret meets
/// its mark in any encoding.
std::string picture(std::string_view text, std::size_t at) {
  constexpr std::size_t before = 48;
  constexpr std::size_t width = 72;
  const std::size_t begin = at > before ? at - before : 0;
  std::string line(text.substr(begin, width));
  for (char& c : line)
    if (!is_printable(c)) c = is_space(c) ? ' ' : '?';
  const std::string_view cut_left = begin > 0 ? "..." : "";
  const std::string_view cut_right = begin + width < text.size() ? "..." : "";
  std::string picture = "  ";
  picture.append(cut_left).append(line).append(cut_right).append("\n  ");
  return picture.append(cut_left.size() + at - begin, ' ').append("^");
}

/// Levenshtein's distance.
std::size_t edits_between(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t exchanged = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({exchanged, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

bool PatternReader::at_name() const { return is_letter(peek()); }

bool PatternReader::take(char sign) {
  if (peek() != sign || at_end()) return false;
  ++at_;
  skip_space();
  return true;
}

void PatternReader::expect(char sign, std::string_view expected) {
  if (!take(sign)) fail_expecting(at_, expected);
}

std::string_view PatternReader::name() {
  if (!at_name()) return {};
  const std::string_view word = text_.substr(at_, word_length(text_.substr(at_)));
  at_ += word.size();
  skip_space();
  return word;
}

Index PatternReader::integer(std::string_view expected) {
  Index number = 0;
  const char* first = text_.data() + at_;
  const auto [end, error] = std::from_chars(first, text_.data() + text_.size(), number);
  if (error == std::errc::result_out_of_range)
    fail(at_, found(at_) + " does not fit a signed 64-bit integer");
  if (error != std::errc()) fail_expecting(at_, expected);
  at_ += to_size(end - first);
  skip_space();
  return number;
}

void PatternReader::fail_expecting(std::size_t at, std::string_view expected) const {
  fail(at, "found " + found(at) + ", expected " + std::string(expected));
}

void PatternReader::fail(std::size_t at, std::string_view reason) const {
  throw PatternTextError("pattern: column " + std::to_string(at + 1) + ": " + std::string(reason) +
                         "\n" + picture(text_, at));
}

void PatternReader::skip_space() {
  while (!at_end() && is_space(text_[at_])) ++at_;
}

std::string PatternReader::found(std::size_t at) const {
  constexpr std::size_t longest = 24;
  if (at >= text_.size()) return "the end of the text";
  if (!is_printable(text_[at])) return "byte " + hex_byte(text_[at]);
  const std::size_t length = std::max<std::size_t>(1, word_length(text_.substr(at)));
  const std::string word(text_.substr(at, std::min(length, longest)));
  return "'" + word + (length > longest ? "...'" : "'");
}

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> names) {
  constexpr std::size_t longest = 32;
  if (name.size() > longest) return {};
  std::string_view nearest;
  // A name with as many mistakes as half its letters is a different word.
  std::size_t fewest = name.size() / 2 + 1;
  for (const std::string_view candidate : names) {
    const std::size_t edits = edits_between(name, candidate);
    if (edits >= fewest) continue;
    fewest = edits;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace rapt::detail
