#pragma once

#include <span>

#include "attention/cache/cache_pages.h"
#include "attention/forward/packed_keys.h"

namespace rapt {

/// The tiles of one cached sequence, as they lie where the call can read them so, else unpacked for
/// it.
class CachedKeys : public KeySource {
 public:
  /// As f32, or for a call that multiplies in bf16 as pairs.
  CachedKeys(const KvCache::Body& cache, const KvCache::Body::Tokens& tokens)
      : cache_(cache), tokens_(tokens) {}
  CachedKeys(const Call& call, const KvCache::Body& cache, const KvCache::Body::Tokens& tokens)
      : cache_(cache),
        tokens_(tokens),
        key_pairs_(call.pairs == nullptr ? 0 : tile * call.pair_depth(call.dim)) {}

  PackedTile get(Index item, Index kv_head, Index key_tile, float* room) override;

  /// Throws if the plan visits a tile that the window has let go.
  void check_visits(const char* where, const Plan& plan) const;

 private:
  const PageLayout& layout() const { return cache_.layout; }
  PackedTile pairs_of(const PageHead& head, bool finite, float* room) const;
  /// An open page as a closed one, in memory of its own with so many bytes for the keys.
  PageHead arranged(const PageHead& head, Index key_tile, std::byte* room, Index key_bytes) const;

  const KvCache::Body& cache_;
  const KvCache::Body::Tokens& tokens_;
  Index key_pairs_ = 0;  // bf16 numbers the call wants in a tile of keys; 0: f32 panels
};

}  // namespace rapt
