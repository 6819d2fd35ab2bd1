#pragma once

#include <atomic>
#include <vector>

#include "attention/scoring.h"

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
};

/// Numbers that one tile of keys and values takes at most, in any layout.
inline Index packed_room(const Call& call) {
  return tile * (call.pair_depth(call.dim) + call.padded(call.value_dim));
}

/// Keys and values of every (batch item, key head), packed by whoever asks for a tile first: it is
/// then in that thread's cache, and tiles that no query visits cost nothing.
class PackedKeys : public KeySource {
 public:
  explicit PackedKeys(const Call& call);

  /// Waits if another thread is at it.
  PackedTile get(Index item, Index kv_head, Index key_tile, float* room) override;

 private:
  enum class State : std::uint8_t { raw, busy, finite, special };
  State pack(Index item, Index kv_head, Index key_tile, Index at);

  const Call& call_;
  Index kv_heads_, tiles_;
  Index key_size_, value_size_;  // numbers in a tile
  Buffer<float> keys_, values_;
  Buffer<Bf16> key_pairs_, value_pairs_;
  std::vector<std::atomic<State>> states_;
};

}  // namespace rapt
