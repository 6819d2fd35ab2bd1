#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "attention/score/tile_logits.h"

namespace rapt {

/// 64 keys and values in the layout the kernels read.
struct PackedTile {
  RightTile keys;
  const float* values;
  const Bf16* value_pairs;  // instead of values where call.pairs multiplies
  bool finite;  // false if a value is NaN or infinite: 0 * value is then not 0, and hidden keys
                // need care
};

/// Where forward finds the keys and values of a call.
class KeySource {
 public:
  virtual ~KeySource() = default;
  /// `room` is the caller's, packed_room(call) floats to unpack into.
  virtual PackedTile get(Index item, Index kv_head, Index key_tile, float* room) = 0;
  /// This tile may be asked for soon.
  virtual void expect(Index, Index, Index) {}
  /// A task that read tiles of this head is over, and so is the use of what it got.
  virtual void leave(Index, Index) {}
};

/// Numbers that one tile of keys and values takes at most, in any layout.
inline Index packed_room(const Call& call) {
  return tile * (call.pair_depth(call.dim) + call.padded(call.value_dim));
}

/// Keys and values of every (batch item, key head), packed by whoever asks for a tile first: it is
/// then in that thread's cache, and tiles that no query visits cost nothing. Tasks go head after
/// head, so only a few heads need memory at a time.
class PackedKeys : public KeySource {
 public:
  /// `tasks` read tiles of a key head, and each of them leaves.
  PackedKeys(const Call& call, Index tasks);

  /// Waits if another thread is at it.
  PackedTile get(Index item, Index kv_head, Index key_tile, float* room) override;
  void leave(Index item, Index kv_head) override;

 private:
  enum class State : std::uint8_t { raw, busy, finite, special };
  /// Memory for the tiles of one head.
  struct Room {
    Buffer<float> keys, values;
    Buffer<Bf16> key_pairs, value_pairs;
  };
  struct Head {
    std::atomic<Room*> room = nullptr;
    std::atomic<Index> tasks = 0;  // that have not left
  };

  Room& room_of(Index owner);
  State pack(Index item, Index kv_head, Index key_tile, Room& room);

  const Call& call_;
  Index kv_heads_, tiles_;
  Index key_size_, value_size_;  // numbers in a tile
  std::vector<std::atomic<State>> states_;
  std::vector<Head> heads_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Room>> rooms_;
  std::vector<Room*> free_rooms_;
};

}  // namespace rapt
