#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rapt::detail {

/// The spelling of the token that stands for a byte no other token has: <0x0A>.
inline std::string byte_token(std::uint8_t byte) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  return std::string("<0x") + digits[byte >> 4] + digits[byte & 15] + ">";
}

/// Nothing if the token is not one of those; the digits may be small.
inline std::optional<std::uint8_t> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int value = 0;
  for (const char letter : token.substr(3, 2)) {
    const int digit = letter >= '0' && letter <= '9'   ? letter - '0'
                      : letter >= 'A' && letter <= 'F' ? letter - 'A' + 10
                      : letter >= 'a' && letter <= 'f' ? letter - 'a' + 10
                                                       : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + digit;
  }
  return static_cast<std::uint8_t>(value);
}

}  // namespace rapt::detail
