// Only models read and write files; the attention engine alone is built without xxhash.
#ifdef RAPT_MODELS

#include "base/io/hash.h"

#include <xxhash.h>

namespace rapt::detail {

std::string Hash::text() const {
  std::string digits(32, '0');
  for (std::size_t i = 0; i < 32; ++i) {
    const std::uint64_t word = i < 16 ? high : low;
    digits[i] = "0123456789abcdef"[word >> (60 - 4 * (i % 16)) & 15];
  }
  return digits;
}

struct Hasher::State {
  XXH3_state_t state;
};

Hasher::Hasher() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->state); }
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;
Hasher::~Hasher() = default;

void Hasher::add(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_128bits_update(&state_->state, bytes.data(), bytes.size());
}

Hash Hasher::hash() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->state);
  return {hash.high64, hash.low64};
}

Hash hash_of(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

}  // namespace rapt::detail

#endif
