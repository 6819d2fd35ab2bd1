#include "attention/packed.h"

#include <thread>

namespace rapt {

PackedKeys::PackedKeys(const Call& call)
    : call_(call),
      kv_heads_(call.kv_heads),
      tiles_(call.key_tiles()),
      width_(call.padded(call.value_dim)),
      keys_(checked_product({call.batch, call.kv_heads, tiles_, tile, call.dim})),
      values_(checked_product({call.batch, call.kv_heads, tiles_, tile, width_})),
      states_(static_cast<std::size_t>(checked_product({call.batch, call.kv_heads, tiles_}))) {
  for (std::atomic<State>& state : states_) state.store(State::raw, std::memory_order_relaxed);
}

PackedTile PackedKeys::get(Index item, Index kv_head, Index key_tile, float*) {
  const Index at = (item * kv_heads_ + kv_head) * tiles_ + key_tile;
  std::atomic<State>& state = states_[static_cast<std::size_t>(at)];
  State seen = state.load(std::memory_order_acquire);
  if (seen == State::raw && state.compare_exchange_strong(seen, State::busy)) {
    seen = pack(item, kv_head, key_tile, at);
    state.store(seen, std::memory_order_release);
  }
  while (seen == State::busy) {
    std::this_thread::yield();
    seen = state.load(std::memory_order_acquire);
  }
  return {keys_.data() + at * tile * call_.dim, values_.data() + at * tile * width_,
          seen == State::finite};
}

PackedKeys::State PackedKeys::pack(Index item, Index kv_head, Index key_tile, Index at) {
  const Index first = key_tile * tile;
  const Index count = call_.tile_keys(key_tile);
  call_.kernels.pack_panels(rows_of(call_.k, item, kv_head, first, count), call_.dim,
                            keys_.data() + at * tile * call_.dim);
  const bool finite =
      call_.kernels.pack_rows(rows_of(call_.v, item, kv_head, first, count), call_.value_dim,
                              nullptr, values_.data() + at * tile * width_);
  return finite ? State::finite : State::special;
}

}  // namespace rapt
