#include "attention/forward/packed_keys.h"

#include <thread>

namespace rapt {

PackedKeys::PackedKeys(const Call& call, Index tasks)
    : call_(call),
      kv_heads_(call.kv_heads),
      tiles_(call.key_tiles()),
      key_size_(tile * (call.pairs == nullptr ? call.dim : call.pair_depth(call.dim))),
      value_size_(tile * call.padded(call.value_dim)),
      states_(static_cast<std::size_t>(checked_product({call.batch, call.kv_heads, tiles_}))),
      heads_(static_cast<std::size_t>(call.batch * call.kv_heads)) {
  for (std::atomic<State>& state : states_) state.store(State::raw, std::memory_order_relaxed);
  for (Head& head : heads_) head.tasks.store(tasks, std::memory_order_relaxed);
}

PackedKeys::Room& PackedKeys::room_of(Index owner) {
  Head& head = heads_[static_cast<std::size_t>(owner)];
  if (Room* room = head.room.load(std::memory_order_acquire)) return *room;
  const std::lock_guard lock(mutex_);
  if (Room* room = head.room.load(std::memory_order_relaxed)) return *room;
  if (free_rooms_.empty()) {
    auto room = std::make_unique<Room>();
    const Index keys = checked_product({tiles_, key_size_});
    const Index values = checked_product({tiles_, value_size_});
    if (call_.pairs == nullptr) {
      room->keys = Buffer<float>(keys);
      room->values = Buffer<float>(values);
    } else {
      room->key_pairs = Buffer<Bf16>(keys);
      room->value_pairs = Buffer<Bf16>(values);
    }
    free_rooms_.reserve(rooms_.size() + 1);  // leave() must not fail
    free_rooms_.push_back(room.get());
    rooms_.push_back(std::move(room));
  }
  Room* room = free_rooms_.back();
  free_rooms_.pop_back();
  head.room.store(room, std::memory_order_release);
  return *room;
}

void PackedKeys::leave(Index item, Index kv_head) {
  Head& head = heads_[static_cast<std::size_t>(item * kv_heads_ + kv_head)];
  if (head.tasks.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  const std::lock_guard lock(mutex_);
  if (Room* room = head.room.exchange(nullptr)) free_rooms_.push_back(room);
}

PackedTile PackedKeys::get(Index item, Index kv_head, Index key_tile, float*) {
  const Index owner = item * kv_heads_ + kv_head;
  Room& room = room_of(owner);
  std::atomic<State>& state = states_[static_cast<std::size_t>(owner * tiles_ + key_tile)];
  State seen = state.load(std::memory_order_acquire);
  if (seen == State::raw && state.compare_exchange_strong(seen, State::busy)) {
    seen = pack(item, kv_head, key_tile, room);
    state.store(seen, std::memory_order_release);
  }
  while (seen == State::busy) {
    std::this_thread::yield();
    seen = state.load(std::memory_order_acquire);
  }
  const bool finite = seen == State::finite;
  if (call_.pairs != nullptr) {
    return {.keys = {.pairs = room.key_pairs.data() + key_tile * key_size_},
            .values = nullptr,
            .value_pairs = room.value_pairs.data() + key_tile * value_size_,
            .finite = finite};
  }
  return {.keys = {.panels = room.keys.data() + key_tile * key_size_},
          .values = room.values.data() + key_tile * value_size_,
          .value_pairs = nullptr,
          .finite = finite};
}

PackedKeys::State PackedKeys::pack(Index item, Index kv_head, Index key_tile, Room& room) {
  const Kernels& kernels = call_.kernels;
  const Index count = call_.tile_keys(key_tile);
  const InputRows k = rows_of(call_.k, item, kv_head, key_tile * tile, count);
  const InputRows v = rows_of(call_.v, item, kv_head, key_tile * tile, count);
  bool finite = true;
  if (call_.pairs == nullptr) {
    kernels.pack_panels(k, call_.dim, nullptr, room.keys.data() + key_tile * key_size_);
    finite =
        kernels.pack_rows(v, call_.value_dim, nullptr, room.values.data() + key_tile * value_size_);
  } else {
    kernels.pack_key_pairs(k, call_.dim, call_.pair_depth(call_.dim) / 2,
                           room.key_pairs.data() + key_tile * key_size_);
    finite = kernels.pack_value_pairs(v, call_.value_dim, call_.padded(call_.value_dim),
                                      room.value_pairs.data() + key_tile * value_size_);
  }
  return finite ? State::finite : State::special;
}

}  // namespace rapt
