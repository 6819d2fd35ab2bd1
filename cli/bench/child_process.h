#pragma once

#include <functional>
#include <optional>
#include <span>

#include "rapt/tensor.h"

namespace rapt::cli {

/// What `work` returns when a process of its own runs it; nothing if that failed. The caller must
/// not have started threads yet.
std::optional<Index> in_child(const std::function<Index()>& work);

/// Zero bytes that children see too, and may fill for their parent.
class SharedBytes {
 public:
  /// Throws std::bad_alloc if memory is short.
  explicit SharedBytes(Index bytes);
  ~SharedBytes();
  SharedBytes(const SharedBytes&) = delete;
  SharedBytes& operator=(const SharedBytes&) = delete;

  /// `count` numbers from byte `begin` on.
  template <class T>
  std::span<T> numbers(Index begin, Index count) {
    T* first = reinterpret_cast<T*>(data_ + begin);
    return {first, first + count};
  }

 private:
  char* data_;
  std::size_t bytes_;
};

}  // namespace rapt::cli
