#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <limits>
#include <new>
#include <span>
#include <utility>

#include "rapt/tensor.h"

namespace rapt::test {

/// Address space that costs memory only where it is touched.
class Reserved {
 public:
  explicit Reserved(Index floats) : bytes_(static_cast<std::size_t>(floats) * sizeof(float)) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  ~Reserved() {
    if (granted()) munmap(data_, bytes_);
  }
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;

  bool granted() const { return data_ != MAP_FAILED; }
  std::span<float> numbers() const { return {static_cast<float*>(data_), bytes_ / sizeof(float)}; }

 private:
  std::size_t bytes_;
  void* data_;
};

/// Floats between two protected pages, filled with NaN.
class Guarded {
 public:
  enum class Side { begin, end };  // which end touches its protected page

  Guarded(Index floats, Side side) : floats_(static_cast<std::size_t>(floats)) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t bytes = floats_ * sizeof(float);
    const std::size_t inside = (bytes + page - 1) / page * page;
    mapped_ = inside + 2 * page;
    memory_ = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    std::byte* first = static_cast<std::byte*>(memory_) + page;
    if (inside > 0 && mprotect(first, inside, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    data_ = reinterpret_cast<float*>(side == Side::begin ? first : first + inside - bytes);
    for (float& number : numbers()) number = std::numeric_limits<float>::quiet_NaN();
  }
  ~Guarded() { munmap(memory_, mapped_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  std::span<float> numbers() const { return {data_, floats_}; }

 private:
  std::size_t floats_, mapped_ = 0;
  void* memory_ = nullptr;
  float* data_ = nullptr;
};

}  // namespace rapt::test
