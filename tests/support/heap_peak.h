#pragma once

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

// Counts what a program takes from the heap. Takes the place of operator new, so one source of a
// program includes it.

namespace rapt::test {

inline std::atomic<long long> heap_in_use{0}, heap_peak{0};  // bytes

/// The most that was in use during a call, beyond what was before; also of a call that throws.
class HeapPeak {
 public:
  HeapPeak() : before_(heap_in_use) { heap_peak = before_; }
  long long bytes() const { return heap_peak - before_; }

 private:
  long long before_;
};

}  // namespace rapt::test

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  const long long now = rapt::test::heap_in_use +=
      static_cast<long long>(malloc_usable_size(memory));
  if (now > rapt::test::heap_peak) rapt::test::heap_peak = now;
  return memory;
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  if (memory != nullptr)
    rapt::test::heap_in_use -= static_cast<long long>(malloc_usable_size(memory));
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }
