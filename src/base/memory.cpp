#include "base/memory.h"

#include <sys/mman.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>

#include "base/keep_memory.h"
#include "base/memory_use.h"

namespace rapt::detail {
namespace {

constexpr std::size_t huge_page = std::size_t{1} << 21;
constexpr std::size_t cache_line = 64;
/// Smaller blocks come from the heap's own caches anyway.
constexpr std::size_t smallest_kept = std::size_t{64} << 10;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool keeps =
    false;  // a kept or moved block would hide a use after release or past the end
#else
constexpr bool keeps = true;
#endif

/// Released blocks, newest last.
class Keep {
 public:
  void* take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = count_; i-- > 0;) {
      if (blocks_[i].bytes != bytes) continue;
      void* memory = blocks_[i].memory;
      drop(i);
      return memory;
    }
    return nullptr;
  }

  /// False if the block does not fit even after the oldest ones have gone.
  bool put(void* memory, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (bytes > limit_) return false;
    shrink_to(limit_ - bytes, most - 1);
    blocks_[count_++] = {memory, bytes};
    total_ += bytes;
    return true;
  }

  /// What the limit was before.
  std::size_t set_limit(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    shrink_to(bytes, most);
    return std::exchange(limit_, bytes);
  }
  std::size_t limit() {
    const std::lock_guard lock(mutex_);
    return limit_;
  }

 private:
  struct Block {
    void* memory;
    std::size_t bytes;
  };
  static constexpr std::size_t most = 1024;

  /// The oldest go first.
  void shrink_to(std::size_t bytes, std::size_t blocks) {
    while (count_ > blocks || total_ > bytes) {
      std::free(blocks_[0].memory);
      drop(0);
    }
  }

  void drop(std::size_t i) {
    total_ -= blocks_[i].bytes;
    for (--count_; i < count_; ++i) blocks_[i] = blocks_[i + 1];
  }

  std::mutex mutex_;
  Block blocks_[most];
  std::size_t count_ = 0;
  std::size_t total_ = 0;
  std::size_t limit_ = kept_bytes;
};

Keep& keep() {
  // Never destroyed: a tensor of static life may be released after everything else.
  static Keep& blocks = *new Keep;
  return blocks;
}

/// Steps of an eighth: batches of different lengths find one another's blocks, and at most an
/// eighth of a block is for nothing.
std::size_t block_size(std::size_t bytes) {
  if (!keeps || bytes < smallest_kept) return bytes;
  const std::size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

std::atomic<Index> held{0}, most_held{0};

void count_taken(std::size_t bytes) noexcept {
  const Index now = held.fetch_add(static_cast<Index>(bytes), std::memory_order_relaxed) +
                    static_cast<Index>(bytes);
  Index before = most_held.load(std::memory_order_relaxed);
  while (now > before && !most_held.compare_exchange_weak(before, now, std::memory_order_relaxed)) {
  }
}

/// Small blocks come from malloc and are moved up to a boundary. Aligned allocation bypasses
/// malloc's caches: a call over few keys then spent more time on allocation than on computing. The
/// byte before a block says how far it was moved.
void* small_block(std::size_t bytes) {
  auto* memory = static_cast<std::uint8_t*>(std::malloc(bytes + cache_line));
  if (memory == nullptr) throw std::bad_alloc();
  const std::size_t moved = cache_line - reinterpret_cast<std::uintptr_t>(memory) % cache_line;
  memory += moved;
  memory[-1] = static_cast<std::uint8_t>(moved);
  return memory;
}

void free_small_block(void* memory) noexcept {
  auto* at = static_cast<std::uint8_t*>(memory);
  std::free(at - at[-1]);
}

void* taken(std::size_t bytes) {
  if (keeps && bytes < smallest_kept) return small_block(bytes);
  if (keeps) {
    if (void* memory = keep().take(bytes)) return memory;
  }
  const bool large = bytes >= 2 * huge_page;
  void* memory = nullptr;
  // Not aligned_alloc: the exact size lets the address sanitizer see the first byte past the end.
  if (posix_memalign(&memory, large ? huge_page : cache_line, bytes) != 0) throw std::bad_alloc();
  // Advice only: whole huge pages inside the block, and no harm where the system has none.
  if (large) madvise(memory, bytes / huge_page * huge_page, MADV_HUGEPAGE);
  return memory;
}

}  // namespace

void* allocate_memory(std::size_t wanted) {
  const std::size_t bytes = block_size(wanted);
  void* memory = taken(bytes);
  count_taken(bytes);
  return memory;
}

void release_memory(void* memory, std::size_t wanted) noexcept {
  if (memory == nullptr) return;
  const std::size_t bytes = block_size(wanted);
  held.fetch_sub(static_cast<Index>(bytes), std::memory_order_relaxed);
  if (keeps && bytes < smallest_kept) return free_small_block(memory);
  if (keeps && keep().put(memory, bytes)) return;
  std::free(memory);
}

KeepMemory::KeepMemory(std::size_t bytes)
    : before_(keep().set_limit(std::max(bytes, keep().limit()))) {}
KeepMemory::~KeepMemory() { keep().set_limit(before_); }

Index memory_in_use() noexcept { return held.load(std::memory_order_relaxed); }
Index memory_peak() noexcept { return most_held.load(std::memory_order_relaxed); }
void forget_memory_peak() noexcept { most_held = memory_in_use(); }

Index machine_memory() noexcept {
  struct sysinfo about {};
  if (sysinfo(&about) != 0) return 0;
  return static_cast<Index>(about.totalram + about.totalswap) * static_cast<Index>(about.mem_unit);
}

}  // namespace rapt::detail
