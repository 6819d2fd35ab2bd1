#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace rapt::detail {

/// 128 bits that tell whether bytes are still the same. No protection against malice.
struct Hash {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  bool operator==(const Hash&) const = default;
  /// 32 digits of base 16.
  std::string text() const;
};

/// XXH3 of bytes that come in parts; how they are parted makes no difference.
class Hasher {
 public:
  Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  ~Hasher();
  void add(std::span<const std::byte> bytes);
  Hash hash() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Hash hash_of(std::span<const std::byte> bytes);

}  // namespace rapt::detail
