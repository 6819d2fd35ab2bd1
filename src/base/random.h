#pragma once

#include <cstdint>
#include <initializer_list>

#include "rapt/tensor.h"

namespace rapt::detail {

/// A permutation of 64 bits in which every input bit reaches every output bit (SplitMix64's).
constexpr std::uint64_t scrambled(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

/// Random bits that belong to a seed and to numbers that say where they are used. Nothing is drawn
/// in turn, so nothing has to be remembered: the same place has the same bits in every run.
constexpr std::uint64_t random_bits(std::uint64_t seed, std::initializer_list<Index> place) {
  std::uint64_t x = scrambled(seed);
  for (const Index part : place) x = scrambled(x ^ static_cast<std::uint64_t>(part));
  return x;
}

/// A number from 0 to bound - 1 out of 64 random bits; its bias is below bound / 2^64.
constexpr Index random_below(std::uint64_t bits, Index bound) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<Index>(Wide{bits} * static_cast<std::uint64_t>(bound) >> 64);
}

/// A sequence of random numbers.
class RandomStream {
 public:
  explicit RandomStream(std::uint64_t bits) : bits_(bits) {}
  Index below(Index bound) { return random_below(scrambled(bits_ += 0x9E3779B97F4A7C15u), bound); }

 private:
  std::uint64_t bits_;
};

/// A random order of 0 to count - 1 that takes no memory: a Feistel network on the next even number
/// of bits, applied again until it lands below count.
class RandomOrder {
 public:
  RandomOrder(Index count, std::uint64_t key) : count_(count), key_(key) {
    while (half_ < 31 && count > Index{1} << 2 * half_) ++half_;
  }

  /// Each number below count is the image of one place below count.
  Index operator[](Index place) const {
    do place = network(place);
    while (place >= count_);
    return place;
  }

 private:
  Index network(Index number) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_) - 1;
    std::uint64_t left = static_cast<std::uint64_t>(number) >> half_;
    std::uint64_t right = static_cast<std::uint64_t>(number) & mask;
    for (std::uint64_t round = 0; round < rounds; ++round) {
      const std::uint64_t next = left ^ (scrambled(key_ ^ (right << 8 | round)) & mask);
      left = right;
      right = next;
    }
    return static_cast<Index>(left << half_ | right);
  }

  static constexpr std::uint64_t rounds = 6;
  Index count_;
  std::uint64_t key_;
  // At least 3: networks of fewer bits reach only a few of the orders there are.
  int half_ = 3;
};

}  // namespace rapt::detail
