#include "text/unicode/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <vector>

#include "base/sizes.h"
#include "text/unicode/characters.h"
#include "text/unicode/unicode_ranges.h"

namespace rapt::detail {
namespace {

enum : std::uint8_t {
  space_flag = 1,
  control_flag = 2,
  punctuation_flag = 4,
  number_flag = 8,
  word_flag = 16,
  mark_flag = 32,
  accent_flag = 64,
  whole_flag = 128,
};

constexpr CodeRange space_ranges[] = {
    {0x9, 0xD},       {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
    {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
constexpr CodeRange ideograph_ranges[] = {
    {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},  {0x20000, 0x2A6DF},
    {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};

/// Flags of every character, in pages that are shared as long as they are empty.
class FlagTable {
 public:
  FlagTable() : pages_(1) {
    add(space_ranges, space_flag);
    add(control_ranges, control_flag);
    add(punctuation_ranges, punctuation_flag);
    add(number_ranges, number_flag);
    add(word_ranges, word_flag);
    add(mark_ranges, mark_flag);
    add(accent_ranges, accent_flag);
    add(whole_ranges, whole_flag);
  }
  std::uint8_t of(char32_t code) const { return pages_[index_[code >> 8]][code & 0xFF]; }

 private:
  void add(std::span<const CodeRange> ranges, std::uint8_t flag) {
    for (const auto& [first, last] : ranges)
      for (char32_t code = first; code <= last; ++code) {
        std::uint16_t& page = index_[code >> 8];
        if (page == 0) {
          page = static_cast<std::uint16_t>(pages_.size());
          pages_.emplace_back();
        }
        pages_[page][code & 0xFF] |= flag;
      }
  }
  std::array<std::uint16_t, 0x1100> index_ = {};
  std::vector<std::array<std::uint8_t, 256>> pages_;
};

bool has(char32_t code, std::uint8_t flag) {
  static const FlagTable table;
  return (table.of(code) & flag) != 0;
}

/// Marks that are newer than the version the others normalize with have no class there.
int combining_class(char32_t code) {
  if (code < 0x300 || !is_mark(code)) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(code))->combining_class;
}

using Codes = std::vector<utf8proc_int32_t>;

void decompose(std::string_view text, utf8proc_option_t options, Codes& codes) {
  for_each_character(text, [&](char32_t code, std::string_view) {
    if (code < 0xA0 || has(code, whole_flag)) {
      codes.push_back(static_cast<utf8proc_int32_t>(code));
      return;
    }
    std::array<utf8proc_int32_t, 32> parts;  // 18 is the most
    int boundary = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(code), parts.data(), parts.size(), options, &boundary);
    codes.insert(codes.end(), parts.begin(), parts.begin() + std::max<utf8proc_ssize_t>(count, 0));
  });
  // Marks of one letter in the order of their classes.
  for (std::size_t begin = 0; begin < codes.size(); ++begin) {
    const auto class_at = [&](std::size_t i) {
      return combining_class(static_cast<char32_t>(codes[i]));
    };
    if (class_at(begin) == 0) continue;
    std::size_t end = begin + 1;
    while (end < codes.size() && class_at(end) != 0) ++end;
    std::stable_sort(codes.begin() + static_cast<std::ptrdiff_t>(begin),
                     codes.begin() + static_cast<std::ptrdiff_t>(end),
                     [](utf8proc_int32_t a, utf8proc_int32_t b) {
                       return combining_class(static_cast<char32_t>(a)) <
                              combining_class(static_cast<char32_t>(b));
                     });
    begin = end - 1;
  }
}

/// Whether the others compose nothing across this character although utf8proc would.
bool composes_alone(utf8proc_int32_t code) {
  constexpr utf8proc_int32_t dives_akuru_vowel = 0x11930;  // Unicode 13
  if (code < 0x300) return false;
  return code == dives_akuru_vowel || (!is_mark(static_cast<char32_t>(code)) &&
                                       utf8proc_get_property(code)->combining_class != 0);
}

void compose(Codes& codes) {
  std::size_t written = 0;
  for (std::size_t begin = 0; begin < codes.size();) {
    std::size_t end = begin + 1;
    while (end < codes.size() && !composes_alone(codes[end])) ++end;
    const utf8proc_ssize_t count = utf8proc_normalize_utf32(
        codes.data() + begin, static_cast<utf8proc_ssize_t>(end - begin),
        static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    std::copy_n(codes.begin() + static_cast<std::ptrdiff_t>(begin), count,
                codes.begin() + static_cast<std::ptrdiff_t>(written));
    written += to_size(count);
    begin = end;
  }
  codes.resize(written);
}

}  // namespace

bool is_space(char32_t code) { return has(code, space_flag); }
bool is_control(char32_t code) { return has(code, control_flag); }
bool is_punctuation(char32_t code) { return has(code, punctuation_flag); }
bool is_numeric(char32_t code) { return has(code, number_flag); }
bool is_word(char32_t code) { return has(code, word_flag); }
bool is_mark(char32_t code) { return has(code, mark_flag); }
bool is_accent(char32_t code) { return has(code, accent_flag); }

bool is_ideograph(char32_t code) {
  if (code < 0x3400) return false;
  return std::any_of(
      std::begin(ideograph_ranges), std::end(ideograph_ranges),
      [&](const CodeRange& range) { return code >= range.first && code <= range.last; });
}

void append_lower(std::string& text, char32_t code) {
  if (code == 0x130) {  // the only one that becomes two
    text += "i\u0307";
    return;
  }
  const auto* known =
      std::lower_bound(std::begin(lower_pairs), std::end(lower_pairs), code,
                       [](const CodeRange& pair, char32_t value) { return pair.first < value; });
  if (known != std::end(lower_pairs) && known->first == code)
    append_character(text, known->last);
  else
    append_character(text,
                     static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
}

std::string normal_form(std::string_view text, Form form) {
  const bool composed = form == Form::nfc || form == Form::nfkc;
  const bool compatible = form == Form::nfkc || form == Form::nfkd;
  // Characters below this stay as they are, whatever follows but marks.
  const char32_t plain = form == Form::nfc ? 0x300 : form == Form::nfd ? 0xC0 : 0xA0;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                      (compatible ? UTF8PROC_COMPAT : 0));
  std::string result;
  result.reserve(text.size());
  Codes codes;
  std::size_t before = 0;  // where the character before `at` begins
  for (std::size_t at = 0; at < text.size();) {
    const Character next = first_character(text.substr(at));
    if (next.code < plain) {
      result += text.substr(at, next.length);
      before = at;
      at += next.length;
      continue;
    }
    // From the character before, which marks may join, to the next ASCII, which joins nothing.
    if (before < at) result.resize(result.size() - (at - before));
    std::size_t end = at;
    while (end < text.size() && static_cast<unsigned char>(text[end]) >= 0x80) ++end;
    codes.clear();
    decompose(text.substr(before, end - before), options, codes);
    if (composed) compose(codes);
    for (const utf8proc_int32_t code : codes) append_character(result, static_cast<char32_t>(code));
    before = at = end;
  }
  return result;
}

std::size_t grapheme_length(std::string_view text) {
  Character last = first_character(text);
  std::size_t length = last.length;
  utf8proc_int32_t state = 0;
  while (length < text.size()) {
    const Character next = first_character(text.substr(length));
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last.code),
                                         static_cast<utf8proc_int32_t>(next.code), &state))
      break;
    length += next.length;
    last = next;
  }
  return length;
}

}  // namespace rapt::detail
