#include "base/torch_random.h"

#include <cmath>
#include <numbers>

namespace rapt::detail {

TorchRandom::TorchRandom(std::uint64_t seed) {
  state_[0] = static_cast<std::uint32_t>(seed);
  for (std::uint32_t i = 1; i < state_.size(); ++i) {
    const std::uint32_t last = state_[i - 1];
    state_[i] = 1812433253u * (last ^ last >> 30) + i;
  }
}

std::uint32_t TorchRandom::word() {
  constexpr std::size_t size = 624, shift = 397;
  if (next_ == size) {
    for (std::size_t i = 0; i < size; ++i) {
      const std::uint32_t y = (state_[i] & 0x80000000u) | (state_[(i + 1) % size] & 0x7FFFFFFFu);
      state_[i] = state_[(i + shift) % size] ^ y >> 1 ^ ((y & 1) != 0 ? 0x9908B0DFu : 0u);
    }
    next_ = 0;
  }
  std::uint32_t y = state_[next_++];
  y ^= y >> 11;
  y ^= y << 7 & 0x9D2C5680u;
  y ^= y << 15 & 0xEFC60000u;
  return y ^ y >> 18;
}

float TorchRandom::uniform() { return static_cast<float>(word() & 0xFFFFFFu) * 0x1p-24f; }

double TorchRandom::wide_uniform() {
  const std::uint64_t high = word();
  const std::uint64_t bits = high << 32 | word();
  return static_cast<double>(bits & ((std::uint64_t{1} << 53) - 1)) * 0x1p-53;
}

/// Box and Muller over the two halves of the block.
void TorchRandom::normal_sixteen(float* block) {
  for (int k = 0; k < 8; ++k) {
    const double radius = std::sqrt(-2 * std::log(1 - static_cast<double>(block[k])));
    const double angle = 2 * std::numbers::pi * static_cast<double>(block[k + 8]);
    block[k] = static_cast<float>(radius * std::cos(angle));
    block[k + 8] = static_cast<float>(radius * std::sin(angle));
  }
}

void TorchRandom::normal(std::span<float> out) {
  if (out.size() < 16) {
    for (std::size_t i = 0; i < out.size(); i += 2) {
      const double angle = 2 * std::numbers::pi * wide_uniform();
      const double radius = std::sqrt(-2 * std::log1p(-wide_uniform()));
      out[i] = static_cast<float>(radius * std::cos(angle));
      if (i + 1 < out.size()) out[i + 1] = static_cast<float>(radius * std::sin(angle));
    }
    return;
  }
  for (float& x : out) x = uniform();
  std::size_t i = 0;
  for (; i + 16 <= out.size(); i += 16) normal_sixteen(out.data() + i);
  if (i == out.size()) return;
  float* last = out.data() + out.size() - 16;  // overlaps what is done already, as torch's does
  for (int k = 0; k < 16; ++k) last[k] = uniform();
  normal_sixteen(last);
}

}  // namespace rapt::detail
