#pragma once

#include "attention/cache/cache_pages.h"
#include "attention/call.h"
#include "attention/plan/tile_mask.h"

namespace rapt {

/// Which tile of which key head, and what is read after it.
struct ThinPlace {
  Index kv_head, key_tile;
  Index next_head, next_tile;
};

/// A few query rows on their way past one tile.
struct ThinRows {
  Index count;
  const TileMask& mask;
  Index seen;   // the first ones, up to the last that any of the rows sees
  Index slots;  // the same in whole vectors
};

/// Packed queries of neighbouring heads.
struct ThinQueries {
  const float* numbers;    // [heads][rows][query_stride]
  const std::byte* bytes;  // [heads][rows][byte_query_size], where keys want them
};

/// The keys and values of one batch item, for a few query rows at a time.
class ThinKeys {
 public:
  virtual ~ThinKeys() = default;
  /// scores[r][slot] of packed queries; what lies behind the last key is anything.
  virtual void scores(const ThinPlace& place, const ThinRows& rows, const float* queries,
                      float* scores) const = 0;
  /// out[r][width] += probabilities[r] · values, over what each row sees. Probabilities are
  /// scratch: outside a row's clip they need not be 0, and they may change.
  virtual void gather(const ThinPlace& place, const ThinRows& rows, float* probabilities,
                      float* out) const = 0;
  /// A whole tile of neighbouring heads in one go, from place.kv_head on, where logits are products
  /// and nothing more; false: not here.
  virtual bool pass(const ThinPlace&, Index /*heads*/, Index /*rows*/, const ThinQueries&,
                    SoftmaxTile*) const {
    return false;
  }
  /// What pass() multiplies bytes by, and packs queries with; null: it takes them as floats.
  virtual const ByteKernels* bytes() const { return nullptr; }
  /// What a tile of one head takes in memory.
  virtual Index tile_bytes() const = 0;
  /// Whether a tile's next neighbour in memory is the same tile of the next head.
  virtual bool heads_lie_together() const = 0;
};

/// What multiplies whole tiles of a cache as bytes; null: they become floats.
const ByteKernels* byte_kernels_for(CacheType type, const Kernels& kernels);

/// Out of a cache, as its pages lie.
class CachedThinKeys : public ThinKeys {
 public:
  CachedThinKeys(const KvCache::Body& cache, const KvCache::Body::Tokens& tokens)
      : cache_(cache), tokens_(tokens) {}

  void scores(const ThinPlace& place, const ThinRows& rows, const float* queries,
              float* scores) const override;
  void gather(const ThinPlace& place, const ThinRows& rows, float* probabilities,
              float* out) const override;
  bool pass(const ThinPlace& place, Index heads, Index rows, const ThinQueries& queries,
            SoftmaxTile* states) const override;
  const ByteKernels* bytes() const override {
    return byte_kernels_for(cache_.options.type, cache_.kernels);
  }
  Index tile_bytes() const override { return cache_.layout.head_bytes; }
  bool heads_lie_together() const override { return true; }

 private:
  void gather_carefully(const ThinPlace& place, const ThinRows& rows, const float* probabilities,
                        float* out) const;
  const Page& page(Index key_tile) const;
  const Kernels::Thin& kernels_for(const Page& page) const;
  PageHead head(Index kv_head, Index key_tile) const;

  const KvCache::Body& cache_;
  const KvCache::Body::Tokens& tokens_;
};

/// The operands of a call as the caller keeps them.
class OperandThinKeys : public ThinKeys {
 public:
  OperandThinKeys(const Call& call, Index item);

  void scores(const ThinPlace& place, const ThinRows& rows, const float* queries,
              float* scores) const override;
  void gather(const ThinPlace& place, const ThinRows& rows, float* probabilities,
              float* out) const override;
  Index tile_bytes() const override;
  bool heads_lie_together() const override;

 private:
  InputRows rows(const AnyView& operand, const ThinPlace& place, Index first, Index count) const;

  const Call& call_;
  Index item_;
  bool ahead_;
};

}  // namespace rapt
