#pragma once

#include "attention/lsh/lsh_places.h"
#include "base/buffer.h"
#include "kernels/kernels.h"
#include "rapt/kv_cache.h"

namespace rapt::detail {

/// How a hashed cache finds the buckets of its tokens: one set of rotations for all sequences, kept
/// as long as the cache.
class LshCacheHash {
 public:
  static constexpr Index most_buckets = 65535;  // with the one for padding they fit 16 bits
  static constexpr Index most_tokens = Index{1} << 30;

  /// Throws std::invalid_argument if the leaf cannot be decoded with.
  LshCacheHash(const CacheLsh& options, Index heads, Index dim, const Kernels& kernels);

  /// As it was given, which is how patterns name it.
  const Lsh& lsh() const { return lsh_; }
  /// Heads times rounds; head_round = head * rounds + round.
  Index head_rounds() const { return heads_ * lsh_.rounds; }
  LshPlaces no_places() const { return {head_rounds(), bucket_count_ + 1}; }
  /// The bucket of padding, after all others.
  Index padding_bucket() const { return bucket_count_; }

  /// [tokens][head_rounds] of k [1, heads, tokens, dim].
  std::vector<std::uint16_t> buckets_of(const AnyView& k) const;
  std::vector<std::uint16_t> padding(Index tokens) const;
  /// A key as the cache stores it.
  void normalize(float* key) const;

 private:
  void hash(const AnyView& k, Index head, Index first, Index count, float* scratch,
            std::uint16_t* out) const;

  const Kernels& kernels_;
  Lsh lsh_;
  std::vector<Index> factors_;
  Index heads_, dim_, columns_ = 0, bucket_count_ = 0;
  Buffer<float> panels_;  // [heads][tiles of columns]
};

}  // namespace rapt::detail
