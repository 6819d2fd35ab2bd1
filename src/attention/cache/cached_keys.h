#pragma once

#include "attention/cache/kv_cache_impl.h"
#include "attention/forward/packed_keys.h"

namespace rapt::detail {

/// The tiles of one cached sequence: its pages where they already have the layouts of
/// TileKernels<T>, else unpacked. T is Bf16 only over a cache of bf16.
template <class T>
class CachedKeys : public KeySource<T> {
 public:
  CachedKeys(const KvCache::Impl& cache, const KvCache::Impl::Tokens& tokens)
      : cache_(cache), tokens_(tokens) {}

  PackedTile<T> get(Index item, Index kv_head, Index key_tile, T* scratch) override;

 private:
  const PageLayout& layout() const { return cache_.layout; }
  /// A partial page in the layout of a full one, in memory of its own with so many bytes for the
  /// keys.
  PageHead arranged(const PageHead& head, Index key_tile, std::byte* to, Index key_bytes) const;

  const KvCache::Impl& cache_;
  const KvCache::Impl::Tokens& tokens_;
};

template <>
PackedTile<float> CachedKeys<float>::get(Index item, Index kv_head, Index key_tile, float* scratch);
template <>
PackedTile<Bf16> CachedKeys<Bf16>::get(Index item, Index kv_head, Index key_tile, Bf16* scratch);

/// Throws if the plan visits a tile that the cache's window has dropped.
void check_visits(const char* where, const KvCache::Impl& cache,
                  const KvCache::Impl::Tokens& tokens, const Plan& plan);

}  // namespace rapt::detail
