#pragma once

#include <array>
#include <cstdint>

namespace rapt {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

/// Philox4x32-10 (Salmon et al., SC 2011): 128 random bits as a function of a counter and a key.
///
/// No state, so any element of a stream is one call and backward can ask for the same bits again.
constexpr PhiloxCounter philox(PhiloxCounter counter, PhiloxKey key) {
  constexpr std::uint64_t multiplier_0 = 0xD2511F53;
  constexpr std::uint64_t multiplier_1 = 0xCD9E8D57;
  constexpr std::uint32_t weyl_0 = 0x9E3779B9;
  constexpr std::uint32_t weyl_1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product_0 = multiplier_0 * counter[0];
    const std::uint64_t product_1 = multiplier_1 * counter[2];
    counter = {static_cast<std::uint32_t>(product_1 >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product_1),
               static_cast<std::uint32_t>(product_0 >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product_0)};
    key = {key[0] + weyl_0, key[1] + weyl_1};
  }
  return counter;
}

}  // namespace rapt
