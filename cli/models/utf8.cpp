#include "cli/models/utf8.h"

#include <fmt/format.h>

#include <numeric>
#include <stdexcept>

namespace rapt::cli {

std::size_t valid_utf8_length(std::string_view bytes) {
  const auto byte = [&](std::size_t at) {
    return at < bytes.size() ? static_cast<unsigned char>(bytes[at]) : 0;
  };
  for (std::size_t at = 0; at < bytes.size();) {
    const int lead = byte(at), second = byte(at + 1);
    const std::size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    // No surrogates, no code points beyond Unicode, no overlong forms.
    bool good = (lead < 0x80 || lead > 0xC1) && lead < 0xF5;
    good = good && (lead != 0xE0 || second > 0x9F) && (lead != 0xED || second < 0xA0);
    good = good && (lead != 0xF0 || second > 0x8F) && (lead != 0xF4 || second < 0x90);
    for (std::size_t i = 1; i < length; ++i) good = good && (byte(at + i) & 0xC0) == 0x80;
    if (!good) return at;
    at += length;
  }
  return bytes.size();
}

void check_utf8(const std::string& where, std::string_view text, const Tokenizer& tokenizer) {
  const std::size_t end = valid_utf8_length(text);
  if (end == text.size()) return;
  std::string bytes(256, '\0');
  std::iota(bytes.begin(), bytes.end(), '\0');
  if (tokenizer.decode(tokenizer.encode(bytes, {.add_special_tokens = false}).ids) == bytes) return;
  throw std::invalid_argument(fmt::format("{} is no text: byte {} is {:#04x}, expected UTF-8",
                                          where, end, static_cast<unsigned char>(text[end])));
}

}  // namespace rapt::cli
