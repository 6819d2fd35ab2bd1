#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "attention/call.h"
#include "base/indexed_vector.h"

namespace rapt::detail {

/// 64 keys and values in the layouts of TileKernels<T>.
template <class T>
struct PackedTile {
  const T* keys;    // panels
  const T* values;  // rows
  bool finite;      // false if a value is NaN or infinite: 0 * value is then not 0, and hidden keys
                    // need care
};

/// Where forward finds the keys and values of a call.
template <class T>
class KeySource {
 public:
  virtual ~KeySource() = default;
  /// `scratch` is the caller's, packed_tile_size<T>(call) numbers to unpack into.
  virtual PackedTile<T> get(Index item, Index kv_head, Index key_tile, T* scratch) = 0;
  /// This tile may be needed soon.
  virtual void prefetch(Index, Index, Index) {}
  /// A task that read tiles of this head is done and no longer uses them.
  virtual void release(Index, Index) {}
};

/// Numbers of one packed tile of keys and values.
template <class T>
Index packed_tile_size(const Call& call) {
  return tile *
         (packed_depth<T>(call.kernels, call.dim) + packed_width<T>(call.kernels, call.value_dim));
}

/// Keys and values of every (batch item, key head). The first task that needs a tile packs it: it
/// is then in that thread's cache, and tiles that no query visits cost nothing. Tasks go head after
/// head, so only a few heads need memory at a time.
template <class T>
class PackedKeys : public KeySource<T> {
 public:
  /// `tasks` read tiles of a key head, and each of them releases it.
  PackedKeys(const Call& call, Index tasks);

  /// Waits if another thread is packing the tile.
  PackedTile<T> get(Index item, Index kv_head, Index key_tile, T* scratch) override;
  void release(Index item, Index kv_head) override;

 private:
  enum class State : std::uint8_t { raw, busy, finite, special };
  /// Memory for the tiles of one head.
  struct HeadTiles {
    Buffer<T> keys, values;
  };
  struct Head {
    std::atomic<HeadTiles*> tiles = nullptr;
    std::atomic<Index> tasks = 0;  // that have not released it
  };

  HeadTiles& tiles_of(Index batch_head);
  State pack(Index item, Index kv_head, Index key_tile, HeadTiles& to);

  const Call& call_;
  Index kv_heads_, tiles_;
  Index depth_, width_;          // of a packed key and value
  Index key_size_, value_size_;  // numbers in a tile
  IndexedVector<std::atomic<State>> states_;
  IndexedVector<Head> heads_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<HeadTiles>> all_tiles_;
  std::vector<HeadTiles*> free_tiles_;
};

}  // namespace rapt::detail
