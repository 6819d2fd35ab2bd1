#pragma once

#include <cassert>
#include <memory>
#include <type_traits>
#include <utility>

#include "base/memory.h"
#include "base/sizes.h"

namespace rapt::detail {

/// Uninitialised numbers on a 64-byte boundary, owned; move-only.
template <class T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  Buffer() = default;
  /// Throws std::invalid_argument on a negative or overflowing size, std::bad_alloc if memory is
  /// short.
  explicit Buffer(Index size) : data_(allocate(size)), size_(size) {}
  Buffer(Buffer&& other) noexcept
      : data_(std::move(other.data_)), size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    data_ = std::move(other.data_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  Index size() const { return size_; }
  T& operator[](Index i) {
    assert(0 <= i && i < size_);
    return data()[i];
  }
  const T& operator[](Index i) const {
    assert(0 <= i && i < size_);
    return data()[i];
  }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }

 private:
  using Memory = std::unique_ptr<T[], ReleaseMemory>;
  static Memory allocate(Index size) {
    check(size >= 0, "a buffer cannot have ", size, " elements");
    const std::size_t bytes = to_size(checked_product({size, Index{sizeof(T)}}));
    return Memory(bytes == 0 ? nullptr : static_cast<T*>(allocate_memory(bytes)), {bytes});
  }

  Memory data_;
  Index size_ = 0;
};

}  // namespace rapt::detail
