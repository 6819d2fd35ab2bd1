#pragma once

#include <map>
#include <vector>

#include "base/buffer.h"
#include "kernels/context.h"
#include "rapt/cache.h"

namespace rapt {

/// One head of one page.
struct PageHead {
  std::byte* keys;
  std::byte* values;
  float* scales;  // [2][64]: keys, values; null unless int8
};

/// Where the parts of a page lie: for each head keys and values, as panels and rows of f32 or as
/// words of two bf16 or four int8, and for int8 the scales of both.
struct PageLayout {
  PageLayout(const CacheOptions& options, const Kernels& kernels);

  CacheType type;
  Index dim, value_dim, width;  // width: value_dim in whole vectors
  Index value_width;            // of a stored row of values, no less
  Index panel;
  Index number_bytes, in_word;                // numbers of a 32-bit word
  Index key_bytes, value_bytes, scale_bytes;  // of one head
  Index head_bytes, page_bytes;

  /// One token of a head, in numbers as they are stored.
  void write(const PageHead& to, Index slot, const float* key, const float* value) const;
  template <class T>
  void write(const PageHead& to, Index slot, const T* key, const T* value) const;
};

/// 64 tokens of all heads, counted by who refers to them.
struct Page {
  std::byte* memory = nullptr;
  Index owners = 0;
  bool finite = true;  // no NaN or infinity was ever written
};

struct KvCache::Body {
  Body(const CacheOptions& given, const Context& context_);

  static constexpr Index gone = -1;
  struct Tokens {
    Index count = 0;
    std::vector<Index> pages;  // by tile of 64 tokens; `gone` where the window passed
  };

  PageHead head(Index page, Index kv_head) const;
  const Tokens& tokens_of(Sequence sequence, const char* where) const;
  Tokens& tokens_of(Sequence sequence, const char* where);

  Index make_page();
  void make_slab();
  void share(const Tokens& tokens);
  void drop(Index page);
  /// The page of a tile, for this sequence alone to write to.
  Index own_page(Tokens& tokens, Index tile_index);
  void write_token(Index page, Index kv_head, Index slot, const float* key, const float* value);
  /// Gives up the pages that neither `oldest_query` nor any later token has in its window.
  void let_go(Tokens& tokens, Index oldest_query);

  CacheOptions options;
  Context context;
  const Kernels& kernels;
  PageLayout layout;
  std::vector<Buffer<std::byte>> slabs;  // several pages each, large enough for huge ones
  std::vector<Page> pages;
  std::vector<Index> free_pages;
  std::map<Sequence, Tokens> sequences;
  Sequence next_sequence = 0;
};

}  // namespace rapt
