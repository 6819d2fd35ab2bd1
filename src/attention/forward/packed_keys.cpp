#include "attention/forward/packed_keys.h"

#include <thread>

namespace rapt::detail {
namespace {

/// Rows of keys and values, and where they are packed.
template <class T>
struct KeysToPack {
  InputRows k, v;
  Index dim, value_dim;
  Index depth, width;  // packed
  T *keys, *values;
};

bool pack_keys(const TileKernels<float>& tiles, const KeysToPack<float>& from) {
  tiles.pack_panels(from.k, from.dim, nullptr, from.keys);
  return tiles.pack_rows(from.v, from.value_dim, nullptr, from.values);
}

bool pack_keys(const TileKernels<Bf16>& tiles, const KeysToPack<Bf16>& from) {
  tiles.pack_panels(from.k, from.dim, from.depth / 2, from.keys);
  return tiles.pack_rows(from.v, from.value_dim, from.width, from.values);
}

}  // namespace

template <class T>
PackedKeys<T>::PackedKeys(const Call& call, Index tasks)
    : call_(call),
      kv_heads_(call.kv_heads),
      tiles_(call.key_tiles()),
      depth_(packed_depth<T>(call.kernels, call.dim)),
      width_(packed_width<T>(call.kernels, call.value_dim)),
      key_size_(tile * depth_),
      value_size_(tile * width_),
      states_(checked_product({call.batch, call.kv_heads, tiles_})),
      heads_(call.batch * call.kv_heads) {
  for (std::atomic<State>& state : states_) state.store(State::raw, std::memory_order_relaxed);
  for (Head& head : heads_) head.tasks.store(tasks, std::memory_order_relaxed);
}

template <class T>
typename PackedKeys<T>::HeadTiles& PackedKeys<T>::tiles_of(Index batch_head) {
  Head& head = heads_[batch_head];
  if (HeadTiles* tiles = head.tiles.load(std::memory_order_acquire)) return *tiles;
  const std::lock_guard lock(mutex_);
  if (HeadTiles* tiles = head.tiles.load(std::memory_order_relaxed)) return *tiles;
  if (free_tiles_.empty()) {
    auto tiles = std::make_unique<HeadTiles>();
    tiles->keys = Buffer<T>(checked_product({tiles_, key_size_}));
    tiles->values = Buffer<T>(checked_product({tiles_, value_size_}));
    free_tiles_.reserve(all_tiles_.size() + 1);  // release() must not fail
    free_tiles_.push_back(tiles.get());
    all_tiles_.push_back(std::move(tiles));
  }
  HeadTiles* tiles = free_tiles_.back();
  free_tiles_.pop_back();
  head.tiles.store(tiles, std::memory_order_release);
  return *tiles;
}

template <class T>
void PackedKeys<T>::release(Index item, Index kv_head) {
  Head& head = heads_[item * kv_heads_ + kv_head];
  if (head.tasks.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  const std::lock_guard lock(mutex_);
  if (HeadTiles* tiles = head.tiles.exchange(nullptr)) free_tiles_.push_back(tiles);
}

template <class T>
PackedTile<T> PackedKeys<T>::get(Index item, Index kv_head, Index key_tile, T*) {
  const Index batch_head = item * kv_heads_ + kv_head;
  HeadTiles& tiles = tiles_of(batch_head);
  std::atomic<State>& state = states_[batch_head * tiles_ + key_tile];
  State seen = state.load(std::memory_order_acquire);
  if (seen == State::raw && state.compare_exchange_strong(seen, State::busy)) {
    seen = pack(item, kv_head, key_tile, tiles);
    state.store(seen, std::memory_order_release);
  }
  while (seen == State::busy) {
    std::this_thread::yield();
    seen = state.load(std::memory_order_acquire);
  }
  return {tiles.keys.data() + key_tile * key_size_, tiles.values.data() + key_tile * value_size_,
          seen == State::finite};
}

template <class T>
typename PackedKeys<T>::State PackedKeys<T>::pack(Index item, Index kv_head, Index key_tile,
                                                  HeadTiles& to) {
  const bool finite = pack_keys(tile_kernels<T>(call_.kernels),
                                {.k = call_.key_rows(call_.k, item, kv_head, key_tile),
                                 .v = call_.key_rows(call_.v, item, kv_head, key_tile),
                                 .dim = call_.dim,
                                 .value_dim = call_.value_dim,
                                 .depth = depth_,
                                 .width = width_,
                                 .keys = to.keys.data() + key_tile * key_size_,
                                 .values = to.values.data() + key_tile * value_size_});
  return finite ? State::finite : State::special;
}

template class PackedKeys<float>;
template class PackedKeys<Bf16>;

}  // namespace rapt::detail
