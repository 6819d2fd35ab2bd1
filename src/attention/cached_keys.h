#pragma once

#include "attention/cache_pages.h"
#include "attention/packed.h"

namespace rapt {

/// The tiles of one cached sequence, as they lie if they are f32, else unpacked for the caller.
class CachedKeys : public KeySource {
 public:
  CachedKeys(const KvCache::Body& cache, const KvCache::Body::Tokens& tokens)
      : cache_(cache), tokens_(tokens) {}

  PackedTile get(Index item, Index kv_head, Index key_tile, float* room) override;

  /// Throws if the plan visits a tile that the window has let go.
  void check_visits(const char* where, const Plan& plan) const;

 private:
  const KvCache::Body& cache_;
  const KvCache::Body::Tokens& tokens_;
};

}  // namespace rapt
