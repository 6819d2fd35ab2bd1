#include "attention/cache/cached_keys.h"

#include <algorithm>

#include "base/check.h"

namespace rapt {

/// Pages as they lie, or their keys with zeros up to a depth of bf16 products.
PackedTile CachedKeys::pairs_of(const PageHead& head, bool finite, float* room) const {
  const auto* keys = reinterpret_cast<const Bf16*>(head.keys);
  const auto* values = reinterpret_cast<const Bf16*>(head.values);
  const Index numbers = layout().key_bytes / Index{sizeof(Bf16)};
  if (numbers < key_pairs_) {
    auto* padded = reinterpret_cast<Bf16*>(room);
    std::fill(std::copy_n(keys, numbers, padded), padded + key_pairs_, Bf16());
    keys = padded;
  }
  return {{.pairs = keys}, nullptr, values, finite};
}

PageHead CachedKeys::arranged(const PageHead& head, Index key_tile, std::byte* room,
                              Index key_bytes) const {
  const PageHead to{room, room + key_bytes, head.scales};
  const Index count = std::min(tile, tokens_.count - key_tile * tile);
  layout().arrange(cache_.kernels, head, count, key_bytes / (tile * layout().number_bytes), to);
  return to;
}

PackedTile CachedKeys::get(Index, Index kv_head, Index key_tile, float* room) {
  const Index page = tokens_.pages[static_cast<std::size_t>(key_tile)];
  PageHead head = cache_.head(page, kv_head);
  const bool finite = cache_.pages[static_cast<std::size_t>(page)].finite;
  auto* bytes = reinterpret_cast<std::byte*>(room);
  Buffer<std::byte> between;  // where what is arranged is unpacked as well
  if (cache_.is_open(page)) {
    if (key_pairs_ > 0) {
      head = arranged(head, key_tile, bytes, key_pairs_ * Index{sizeof(Bf16)});
      return {{.pairs = reinterpret_cast<const Bf16*>(head.keys)},
              nullptr,
              reinterpret_cast<const Bf16*>(head.values),
              finite};
    }
    if (cache_.options.type != CacheType::f32) {
      between = Buffer<std::byte>(cache_.closing_bytes());
      bytes = between.data();
    }
    head = arranged(head, key_tile, bytes, layout().key_bytes);
  }
  if (key_pairs_ > 0) return pairs_of(head, finite, room);
  float* values = room + tile * layout().dim;
  switch (cache_.options.type) {
    case CacheType::f32:
      return {{.panels = reinterpret_cast<const float*>(head.keys)},
              reinterpret_cast<const float*>(head.values),
              nullptr,
              finite};
    case CacheType::bf16:
      cache_.kernels.unpack_key_pairs(reinterpret_cast<const Bf16*>(head.keys), layout().dim, room);
      cache_.kernels.unpack_value_pairs(reinterpret_cast<const Bf16*>(head.values),
                                        layout().value_width, layout().width, values);
      return {{.panels = room}, values, nullptr, finite};
    default:
      cache_.kernels.unpack_key_quads(reinterpret_cast<const std::int8_t*>(head.keys), head.scales,
                                      layout().dim, room);
      cache_.kernels.unpack_value_quads(reinterpret_cast<const std::int8_t*>(head.values),
                                        head.scales + tile, layout().value_width, layout().width,
                                        values);
      return {{.panels = room}, values, nullptr, finite};
  }
}

void CachedKeys::check_visits(const char* where, const Plan& plan) const {
  if (cache_.options.window == 0) return;  // nothing was ever let go
  for (Index t = 0; t < plan.query_tiles(); ++t) {
    for (const Visit& visit : plan.visits(t)) {
      for (Index j = visit.first; j < visit.first + visit.count; ++j) {
        check(tokens_.pages[static_cast<std::size_t>(j)] != KvCache::Body::gone, where,
              ": the pattern asks for keys among ", j * tile, " to ", j * tile + tile - 1,
              ", which the cache's window of ", cache_.options.window,
              " has let go; expected a pattern of at most window(", cache_.options.window - 1,
              ", 0), or a cache with a larger window");
      }
    }
  }
}

}  // namespace rapt
