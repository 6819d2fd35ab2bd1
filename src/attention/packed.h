#pragma once

#include <atomic>
#include <vector>

#include "attention/call.h"

namespace rapt {

/// 64 keys and values in the layout the kernels read.
struct PackedTile {
  const float* keys;
  const float* values;
  bool finite;  // false if a value is NaN or infinite: 0 * value is then not 0, and hidden keys
                // need care
};

/// Where forward finds the keys and values of a call.
class KeySource {
 public:
  virtual ~KeySource() = default;
  /// `room` is the caller's: [64][dim] and [64][value_dim in whole vectors] floats to unpack into.
  virtual PackedTile get(Index item, Index kv_head, Index key_tile, float* room) = 0;
};

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
  Index kv_heads_, tiles_, width_;
  Buffer<float> keys_, values_;
  std::vector<std::atomic<State>> states_;
};

}  // namespace rapt
