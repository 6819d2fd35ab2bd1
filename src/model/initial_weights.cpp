#include "model/initial_weights.h"

#include <cmath>
#include <numbers>

#include "base/random.h"

namespace rapt::detail {

/// Two hashes make two uniform numbers, and they a pair of normal ones (Box and Muller).
void draw_normal(Parameter& parameter, double deviation, std::uint64_t seed) {
  std::uint64_t key = scrambled(seed);
  for (const char c : parameter.name) key = scrambled(key ^ static_cast<unsigned char>(c));
  float* numbers = parameter.value.data();
  const Index count = parameter.value.elements();
  for (Index i = 0; i < count; i += 2) {
    const auto place = static_cast<std::uint64_t>(i);
    // In (0, 1]: the logarithm of 0 does not exist.
    const double u = static_cast<double>((scrambled(key ^ scrambled(place)) >> 11) + 1) * 0x1p-53;
    const double angle = static_cast<double>(scrambled(key ^ scrambled(place + 1)) >> 11) * 0x1p-53;
    const double radius = deviation * std::sqrt(-2 * std::log(u));
    numbers[i] = static_cast<float>(radius * std::cos(2 * std::numbers::pi * angle));
    if (i + 1 < count)
      numbers[i + 1] = static_cast<float>(radius * std::sin(2 * std::numbers::pi * angle));
  }
}

}  // namespace rapt::detail
