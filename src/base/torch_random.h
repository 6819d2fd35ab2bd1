#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace rapt::detail {

/// The numbers that torch's CPU generator draws from a seed: the Mersenne Twister, and two ways to
/// make normal numbers of it.
class TorchRandom {
 public:
  explicit TorchRandom(std::uint64_t seed);

  /// One 24-bit number in [0, 1).
  float uniform();
  /// As torch.randn fills a contiguous f32 tensor of this size.
  void normal(std::span<float> out);

 private:
  std::uint32_t word();
  double wide_uniform();
  void normal_sixteen(float* block);

  std::array<std::uint32_t, 624> state_;
  std::size_t next_ = 624;
};

}  // namespace rapt::detail
