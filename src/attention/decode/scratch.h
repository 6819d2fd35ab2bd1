#pragma once

#include "base/buffer.h"

namespace rapt {

/// Room for what a task puts side by side: small things lie where the desk itself does, so that a
/// short call asks nobody for memory.
class Desk {
 public:
  /// Takes so many bytes for what is placed from now on; what lay here before is gone.
  void clear(Index bytes) {
    if (bytes > near_bytes && far_.size() < bytes) far_ = Buffer<std::byte>(bytes);
    at_ = bytes > near_bytes ? far_.data() : near_;
  }
  /// The next `count` of them, uninitialised, on a boundary of 64 bytes.
  template <class T>
  T* place(Index count) {
    T* here = reinterpret_cast<T*>(at_);
    at_ += bytes_of<T>(count);
    return here;
  }
  /// What place(count) takes.
  template <class T>
  static Index bytes_of(Index count) {
    return round_up(checked_product({count, Index{sizeof(T)}}), Index{64});
  }

 private:
  static constexpr Index near_bytes = 12 << 10;
  alignas(64) std::byte near_[near_bytes];
  Buffer<std::byte> far_;
  std::byte* at_ = nullptr;
};

}  // namespace rapt
