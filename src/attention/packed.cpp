#include "attention/packed.h"

#include <thread>

namespace rapt {

PackedKeys::PackedKeys(const Call& call)
    : call_(call),
      kv_heads_(call.kv_heads),
      tiles_(call.key_tiles()),
      key_size_(tile * (call.pairs == nullptr ? call.dim : call.pair_depth(call.dim))),
      value_size_(tile * call.padded(call.value_dim)),
      states_(static_cast<std::size_t>(checked_product({call.batch, call.kv_heads, tiles_}))) {
  const Index keys = checked_product({call.batch, call.kv_heads, tiles_, key_size_});
  const Index values = checked_product({call.batch, call.kv_heads, tiles_, value_size_});
  if (call.pairs == nullptr) {
    keys_ = Buffer<float>(keys);
    values_ = Buffer<float>(values);
  } else {
    key_pairs_ = Buffer<Bf16>(keys);
    value_pairs_ = Buffer<Bf16>(values);
  }
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
  const bool finite = seen == State::finite;
  if (call_.pairs != nullptr) {
    return {.keys = {.pairs = key_pairs_.data() + at * key_size_},
            .values = nullptr,
            .value_pairs = value_pairs_.data() + at * value_size_,
            .finite = finite};
  }
  return {.keys = {.panels = keys_.data() + at * key_size_},
          .values = values_.data() + at * value_size_,
          .value_pairs = nullptr,
          .finite = finite};
}

PackedKeys::State PackedKeys::pack(Index item, Index kv_head, Index key_tile, Index at) {
  const Kernels& kernels = call_.kernels;
  const Index count = call_.tile_keys(key_tile);
  const InputRows k = rows_of(call_.k, item, kv_head, key_tile * tile, count);
  const InputRows v = rows_of(call_.v, item, kv_head, key_tile * tile, count);
  bool finite = true;
  if (call_.pairs == nullptr) {
    kernels.pack_panels(k, call_.dim, keys_.data() + at * key_size_);
    finite = kernels.pack_rows(v, call_.value_dim, nullptr, values_.data() + at * value_size_);
  } else {
    kernels.pack_key_pairs(k, call_.dim, call_.pair_depth(call_.dim) / 2,
                           key_pairs_.data() + at * key_size_);
    finite = kernels.pack_value_pairs(v, call_.value_dim, call_.padded(call_.value_dim),
                                      value_pairs_.data() + at * value_size_);
  }
  return finite ? State::finite : State::special;
}

}  // namespace rapt
