#include "formats/config/short_decimal.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace rapt::detail {

double divided_decimal(double value) {
  std::array<char, 64> letters;
  const auto [end, error] = std::to_chars(letters.data(), letters.data() + letters.size(),
                                          std::abs(value), std::chars_format::scientific);
  const std::string text(letters.data(), end);  // "7.0851844740150804e+00"
  const std::size_t mark = text.find('e');
  std::uint64_t digits = 0;
  int exponent = std::atoi(text.c_str() + mark + 1);
  bool fraction = false;
  for (std::size_t i = 0; i < mark; ++i) {
    if (text[i] == '.') {
      fraction = true;
      continue;
    }
    digits = 10 * digits + static_cast<std::uint64_t>(text[i] - '0');  // 17 at most
    if (fraction) --exponent;
  }
  // Powers as decimal texts give them; std::pow need not be exact.
  double power = 1;
  const std::string name = "1e" + std::to_string(std::abs(exponent));
  std::from_chars(name.data(), name.data() + name.size(), power);
  const auto whole = static_cast<double>(digits);
  const double result = exponent < 0 ? whole / power : whole * power;
  return std::isfinite(result) ? std::copysign(result, value) : value;
}

}  // namespace rapt::detail
