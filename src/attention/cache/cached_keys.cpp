#include "attention/cache/cached_keys.h"

#include <algorithm>

#include "base/check.h"

namespace rapt::detail {
namespace {

template <class T>
const T* numbers(const std::byte* memory) {
  return reinterpret_cast<const T*>(memory);
}

}  // namespace

template <class T>
PageHead CachedKeys<T>::arranged(const PageHead& head, Index key_tile, std::byte* to,
                                 Index key_bytes) const {
  const PageHead full{to, to + key_bytes, head.scales};
  const Index count = std::min(tile, tokens_.count - key_tile * tile);
  layout().arrange(cache_.kernels, head, count, key_bytes / (tile * layout().number_bytes), full);
  return full;
}

/// Full pages where they are, or their keys with zeros up to a depth of bf16 products.
template <>
PackedTile<Bf16> CachedKeys<Bf16>::get(Index, Index kv_head, Index key_tile, Bf16* scratch) {
  const Index page = tokens_.pages[key_tile];
  const PageHead head = cache_.head(page, kv_head);
  const bool finite = cache_.pages[page].finite;
  const Index wanted = tile * packed_depth<Bf16>(cache_.kernels, layout().dim);
  if (cache_.is_partial(page)) {
    const PageHead full = arranged(head, key_tile, reinterpret_cast<std::byte*>(scratch),
                                   wanted * Index{sizeof(Bf16)});
    return {numbers<Bf16>(full.keys), numbers<Bf16>(full.values), finite};
  }
  const auto* keys = numbers<Bf16>(head.keys);
  const Index stored = layout().key_bytes / Index{sizeof(Bf16)};
  if (stored < wanted) {
    std::fill(std::copy_n(keys, stored, scratch), scratch + wanted, Bf16());
    keys = scratch;
  }
  return {keys, numbers<Bf16>(head.values), finite};
}

template <>
PackedTile<float> CachedKeys<float>::get(Index, Index kv_head, Index key_tile, float* scratch) {
  const Index page = tokens_.pages[key_tile];
  const PageKernels& pages = cache_.kernels.pages;
  PageHead head = cache_.head(page, kv_head);
  const bool finite = cache_.pages[page].finite;
  Buffer<std::byte> between;  // a partial page that is arranged first and then unpacked
  if (cache_.is_partial(page)) {
    auto* to = reinterpret_cast<std::byte*>(scratch);
    if (cache_.options.type != CacheType::f32) {
      between = Buffer<std::byte>(cache_.head_scratch_bytes());
      to = between.data();
    }
    head = arranged(head, key_tile, to, layout().key_bytes);
  }
  float* values = scratch + tile * layout().dim;
  switch (cache_.options.type) {
    case CacheType::f32:
      return {numbers<float>(head.keys), numbers<float>(head.values), finite};
    case CacheType::bf16:
      pages.unpack_bf16_keys(numbers<Bf16>(head.keys), layout().dim, scratch);
      pages.unpack_bf16_values(numbers<Bf16>(head.values), layout().value_width, layout().width,
                               values);
      return {scratch, values, finite};
    default:
      pages.unpack_int8_keys(numbers<std::int8_t>(head.keys), head.scales, layout().dim, scratch);
      pages.unpack_int8_values(numbers<std::int8_t>(head.values), head.scales + tile,
                               layout().value_width, layout().width, values);
      return {scratch, values, finite};
  }
}

template class CachedKeys<float>;
template class CachedKeys<Bf16>;

void check_visits(const char* where, const KvCache::Impl& cache,
                  const KvCache::Impl::Tokens& tokens, const Plan& plan) {
  if (!cache.options.window) return;  // every page is kept
  for (Index t = 0; t < plan.query_tiles(); ++t) {
    for (const Visit& visit : plan.visits(t)) {
      for (Index j = visit.first; j < visit.first + visit.count; ++j) {
        check(tokens.pages[j] != KvCache::Impl::gone, where, ": the pattern asks for keys among ",
              j * tile, " to ", j * tile + tile - 1, ", which the cache's window of ",
              *cache.options.window, " has released; expected a pattern of at most window(",
              *cache.options.window - 1, ", 0), or a cache with a larger window");
      }
    }
  }
}

}  // namespace rapt::detail
