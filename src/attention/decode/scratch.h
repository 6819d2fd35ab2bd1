#pragma once

#include "base/buffer.h"

namespace rapt::detail {

/// Memory for a task. A small amount is inside the object itself, so that a short call allocates
/// nothing.
class Scratch {
 public:
  /// Takes so many bytes for the following allocations; earlier ones become invalid.
  void reset(Index bytes) {
    if (bytes > inside_bytes && outside_.size() < bytes) outside_ = Buffer<std::byte>(bytes);
    at_ = bytes > inside_bytes ? outside_.data() : inside_;
  }
  /// The next `count` of them, uninitialised, aligned to 64 bytes.
  template <class T>
  T* allocate(Index count) {
    T* here = reinterpret_cast<T*>(at_);
    at_ += bytes_of<T>(count);
    return here;
  }
  /// What allocate(count) takes.
  template <class T>
  static Index bytes_of(Index count) {
    return round_up(checked_product({count, Index{sizeof(T)}}), Index{64});
  }

 private:
  static constexpr Index inside_bytes = 12 << 10;
  alignas(64) std::byte inside_[inside_bytes];
  Buffer<std::byte> outside_;
  std::byte* at_ = nullptr;
};

}  // namespace rapt::detail
