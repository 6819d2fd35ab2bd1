#pragma once

#include <map>
#include <vector>

#include "attention/cache/page_layout.h"
#include "attention/lsh/lsh_cache_hash.h"
#include "base/access.h"
#include "base/buffer.h"
#include "base/indexed_vector.h"
#include "kernels/context.h"
#include "rapt/kv_cache.h"

namespace rapt {
using namespace detail;

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
