#pragma once

#include "attention/cache/kv_cache_impl.h"
#include "attention/call.h"
#include "attention/plan/tile_mask.h"

namespace rapt::detail {

/// A tile of one key head, and the tile that is read after it.
struct KeyTilePlace {
  Index kv_head, key_tile;
  Index next_head, next_tile;
};

/// The query rows of a key head, and what they see of one tile.
struct QueryRows {
  Index count;
  const TileMask& mask;
  Index seen;   // slots up to the last one that any of the rows sees
  Index slots;  // the same in whole vectors
};

/// Packed queries of neighbouring heads.
struct PackedQueries {
  const float* f32;       // [heads][rows][query_stride]
  const std::byte* int8;  // [heads][rows][int8_query_bytes], if the keys multiply int8
};

/// The keys and values of one batch item where they are stored: in rows or in pages of a cache, as
/// f32, bf16 or int8. They are read by a few query rows at a time.
class StoredKeys {
 public:
  virtual ~StoredKeys() = default;
  /// scores[r][slot] of packed queries; slots behind the last key hold anything.
  virtual void scores(const KeyTilePlace& place, const QueryRows& rows, const float* queries,
                      float* scores) const = 0;
  /// out[r][width] += probabilities[r] · values, over what each row sees. Probabilities are
  /// scratch: outside a row's clip they need not be 0, and they may change.
  virtual void accumulate_values(const KeyTilePlace& place, const QueryRows& rows,
                                 float* probabilities, float* out) const = 0;
  /// Attends to a whole tile of neighbouring heads at once, from place.kv_head on, where logits are
  /// products and nothing more. False: not possible here.
  virtual bool attend(const KeyTilePlace&, Index /*heads*/, Index /*rows*/, const PackedQueries&,
                      SoftmaxTile*) const {
    return false;
  }
  /// Whether attend() multiplies int8, and so reads queries that are packed for it.
  virtual bool multiplies_int8() const { return false; }
  /// Memory of a tile of one head.
  virtual Index tile_bytes() const = 0;
  /// Whether the same tile of the next head is next in memory.
  virtual bool heads_are_adjacent() const = 0;
};

/// Whether full pages of a cache are multiplied as int8.
bool multiplies_int8(CacheType type, const Kernels& kernels);

/// A sequence of a cache.
class PageKeys : public StoredKeys {
 public:
  PageKeys(const KvCache::Impl& cache, const KvCache::Impl::Tokens& tokens)
      : cache_(cache),
        tokens_(tokens),
        kernels_(cache.kernels.decode),
        page_kernels_(kernels_.page[cache.options.type]) {}

  void scores(const KeyTilePlace& place, const QueryRows& rows, const float* queries,
              float* scores) const override;
  void accumulate_values(const KeyTilePlace& place, const QueryRows& rows, float* probabilities,
                         float* out) const override;
  bool attend(const KeyTilePlace& place, Index heads, Index rows, const PackedQueries& queries,
              SoftmaxTile* states) const override;
  bool multiplies_int8() const override {
    return detail::multiplies_int8(cache_.options.type, cache_.kernels);
  }
  Index tile_bytes() const override { return cache_.layout.head_bytes; }
  bool heads_are_adjacent() const override { return true; }

 private:
  void accumulate_nonfinite_values(const KeyTilePlace& place, const QueryRows& rows,
                                   const float* probabilities, float* out) const;
  const Page& page(Index key_tile) const;
  PageHead head(Index kv_head, Index key_tile) const;

  const KvCache::Impl& cache_;
  const KvCache::Impl::Tokens& tokens_;
  const DecodeKernels& kernels_;
  const DecodeKernels::Page& page_kernels_;  // of full pages
};

/// The operands of a call in the caller's memory.
class RowKeys : public StoredKeys {
 public:
  RowKeys(const Call& call, Index item);

  void scores(const KeyTilePlace& place, const QueryRows& rows, const float* queries,
              float* scores) const override;
  void accumulate_values(const KeyTilePlace& place, const QueryRows& rows, float* probabilities,
                         float* out) const override;
  Index tile_bytes() const override;
  bool heads_are_adjacent() const override;

 private:
  StoredRows rows(const AnyView& operand, const KeyTilePlace& place, Index first,
                  Index count) const;

  const Call& call_;
  Index item_;
  bool prefetch_;
};

}  // namespace rapt::detail
