#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "attention/lsh/lsh_cache_hash.h"
#include "base/access.h"
#include "base/buffer.h"
#include "base/indexed_vector.h"
#include "kernels/context.h"
#include "rapt/cache.h"

namespace rapt {
using namespace detail;

/// One head of one page.
struct PageHead {
  std::byte* keys;
  std::byte* values;
  float* scales;  // [2][64]: keys, values; null unless int8
};

/// Where the parts of a page are: for each head keys and values, and for int8 the scales of both.
/// In a partial page a key and a value are each a row; in a full one they are panels and rows of
/// f32 or words of two bf16 or four int8, as the products of whole tiles read them.
struct PageLayout {
  PageLayout(const CacheOptions& options, const Kernels& kernels);

  CacheType type;
  Index dim, value_dim, width;  // width: value_dim in whole vectors
  Index value_width;            // of a stored row of values, no less
  Index panel;
  Index number_bytes, in_word;                // numbers of a 32-bit word
  Index key_bytes, value_bytes, scale_bytes;  // of one head
  Index head_bytes, page_bytes;

  /// One token of a head of a full page, in words of bf16 or int8.
  template <class T>
  void write(const PageHead& to, Index slot, const T* key, const T* value) const;
  /// Writes a row of a partial page.
  template <class T>
  void write_row(const PageHead& to, Index slot, const T* key, const T* value) const {
    std::copy_n(key, dim, reinterpret_cast<T*>(to.keys) + slot * dim);
    std::copy_n(value, value_dim, reinterpret_cast<T*>(to.values) + slot * value_dim);
  }
  /// A token of a full page.
  void read(const PageHead& from, Index slot, float* key, float* value) const;
  template <class T>
  void read(const PageHead& from, Index slot, T* key, T* value) const;
  /// The first `count` rows of a partial page in the layout of a full one, and zeros; bf16 keys of
  /// `key_columns` columns, dim or more. The scales stay where they are.
  void arrange(const Kernels& kernels, const PageHead& rows, Index count, Index key_columns,
               const PageHead& to) const;

  /// Tokens of a partial page.
  StoredRows key_rows(const PageHead& head, Index slot, Index count) const {
    return {key_row(head, slot), row_type(), dim, count,
            head.scales == nullptr ? nullptr : head.scales + slot};
  }
  StoredRows value_rows(const PageHead& head, Index slot, Index count) const {
    return {value_row(head, slot), row_type(), value_dim, count,
            head.scales == nullptr ? nullptr : head.scales + tile + slot};
  }
  const std::byte* key_row(const PageHead& head, Index slot) const {
    return head.keys + slot * dim * number_bytes;
  }
  const std::byte* value_row(const PageHead& head, Index slot) const {
    return head.values + slot * value_dim * number_bytes;
  }
  Type row_type() const { return type == CacheType::bf16 ? Type::bf16 : Type::f32; }
};

/// 64 tokens of all heads.
struct Page {
  std::byte* memory = nullptr;
  Index references = 0;  // of sequences
  bool finite = true;    // no NaN or infinity was ever written
  bool partial = true;   // tokens are in rows: unless it is full, in hashed caches always
};

struct KvCache::Impl {
  Impl(const CacheOptions& given, const Context& context_);

  static constexpr Index gone = -1;
  struct Tokens {
    Index count = 0;
    IndexedVector<Index> pages;  // by tile of 64 tokens; `gone` where the window passed
    std::shared_ptr<LshPlaces> places =
        nullptr;  // of hashed caches; forks share it until one grows
  };

  PageHead head(Index page, Index kv_head) const;
  bool is_partial(Index page) const { return pages[page].partial; }
  const Tokens& tokens_of(Sequence sequence, const char* where) const;
  Tokens& tokens_of(Sequence sequence, const char* where);

  Index make_page();
  void make_slab();
  void share(const Tokens& tokens);
  void drop(Index page);
  /// The page of a tile, for this sequence alone to write to.
  Index own_page(Tokens& tokens, Index tile_index);
  /// Throws if a hashed cache could not count so many tokens more.
  void check_capacity(const Tokens& tokens, Index count) const;
  /// Hashes tokens and puts them into the order of the sequence; padding if k is null. Nothing
  /// changes if it throws.
  void place(Tokens& tokens, const AnyView* k, Index count);
  void write_token(Index page, Index kv_head, Index slot, const float* key, const float* value);
  /// Scratch for make_full() and make_partial().
  Index head_scratch_bytes() const { return layout.key_bytes + layout.value_bytes; }
  void make_full(Index page, std::byte* scratch);
  /// The first tokens of a full page in rows again: bits depend on what a page holds, and not on
  /// what it once held.
  void make_partial(Index page, Index count, std::byte* scratch);
  /// Releases the pages that neither `oldest_query` nor any later token has in its window.
  void release_pages(Tokens& tokens, Index oldest_query);

  CacheOptions options;
  Context context;
  const Kernels& kernels;
  PageLayout layout;
  std::unique_ptr<const LshCacheHash> hash;  // null: not a hashed cache
  std::vector<Buffer<std::byte>> slabs;      // several pages each, large enough for huge ones
  IndexedVector<Page> pages;
  IndexedVector<Index> free_pages;
  std::map<Sequence, Tokens> sequences;
  Sequence next_sequence = 0;
};

}  // namespace rapt
