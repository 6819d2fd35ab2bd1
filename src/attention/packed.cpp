#include "attention/packed.h"

#include <bit>

namespace rapt {

std::vector<Index> visited_key_tiles(const Plan& plan) {
  std::vector<Index> change(static_cast<std::size_t>(plan.key_tiles() + 1));
  for (Index t = 0; t < plan.query_tiles(); ++t) {
    for (const Visit& visit : plan.visits(t)) {
      ++change[static_cast<std::size_t>(visit.first)];
      --change[static_cast<std::size_t>(visit.first + visit.count)];
    }
  }
  std::vector<Index> visited;
  Index depth = 0;
  for (Index j = 0; j < plan.key_tiles(); ++j) {
    depth += change[static_cast<std::size_t>(j)];
    if (depth > 0) visited.push_back(j);
  }
  return visited;
}

PackedKeys::PackedKeys(const Call& call)
    : kv_heads_(call.kv_heads),
      tiles_(call.key_tiles()),
      dim_(call.dim),
      width_(call.padded(call.value_dim)),
      keys_(checked_product({call.batch, call.kv_heads, tiles_, tile, dim_})),
      values_(checked_product({call.batch, call.kv_heads, tiles_, tile, width_})),
      finite_(checked_product({call.batch, call.kv_heads, tiles_})) {
  const std::vector<Index> visited = visited_key_tiles(*call.plan);
  const Index count = static_cast<Index>(visited.size());
  for_each_task(call.context, call.batch * kv_heads_ * count, [&](Index task, Index) {
    const Index owner = task / count;
    pack(call, owner / kv_heads_, owner % kv_heads_,
         visited[static_cast<std::size_t>(task % count)]);
  });
}

void PackedKeys::pack(const Call& call, Index item, Index kv_head, Index key_tile) {
  const Index at = place(item, kv_head, key_tile);
  const Index count = call.tile_keys(key_tile);
  call.kernels.pack_panels(call.k.row(item, kv_head, key_tile * tile), call.k.stride(2), count,
                           dim_, keys_.data() + at * tile * dim_);
  finite_[at] =
      call.kernels.pack_rows(call.v.row(item, kv_head, key_tile * tile), call.v.stride(2), count,
                             call.value_dim, nullptr, values_.data() + at * tile * width_);
}

void clip_strips(std::span<const std::uint64_t, tile> mask, Index lanes, Clips& clips) {
  for (Index s = 0; s < strips; ++s) {
    const std::uint64_t* rows = mask.data() + s * strip;
    const std::uint64_t any = rows[0] | rows[1] | rows[2] | rows[3];
    clips[s] = {};
    if (any == 0) continue;
    const Index first = std::countr_zero(any);
    const Index last = tile - std::countl_zero(any);
    clips[s] = {first / lanes * lanes, round_up(last, lanes)};
  }
}

void clip_columns(std::span<const std::uint64_t, tile> mask, Clips& clips) {
  for (Index s = 0; s < strips; ++s) clips[s] = {};
  for (Index r = 0; r < tile; ++r) {
    for (std::uint64_t word = mask[static_cast<std::size_t>(r)]; word != 0;) {
      const Index s = std::countr_zero(word) / strip;
      if (clips[s].end == 0) clips[s].begin = r;
      clips[s].end = r + 1;
      word &= ~(std::uint64_t{0xF} << (s * strip));
    }
  }
}

}  // namespace rapt
