#include "text/unicode/characters.h"

#include <algorithm>

#include "text/stages/byte_letters.h"

namespace rapt::detail {

std::size_t valid_length(std::string_view text) {
  std::size_t length = 0;
  while (const std::size_t step = valid_character(text.substr(length))) length += step;
  return length;
}

std::string repaired(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t valid = valid_length(text);
    result += text.substr(0, valid);
    if (valid < text.size()) append_character(result, replacement_character);
    text.remove_prefix(std::min(valid + 1, text.size()));
  }
  return result;
}

std::size_t unfinished_length(std::string_view text) {
  for (std::size_t length = 1; length <= 3 && length <= text.size(); ++length) {
    const auto lead = static_cast<unsigned char>(text[text.size() - length]);
    if ((lead & 0xC0) == 0x80) continue;
    const std::size_t whole = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    return length < whole && lead < 0xF5 ? length : 0;
  }
  return 0;
}

}  // namespace rapt::detail
