#include "base/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace rapt {
namespace {

constexpr std::size_t huge_page = std::size_t{1} << 21;
constexpr std::size_t cache_line = 64;

}  // namespace

void* allocate_memory(std::size_t bytes) {
  const bool large = bytes >= 2 * huge_page;
  void* memory = nullptr;
  // Not aligned_alloc: the exact size lets the address sanitizer see the first byte past the end.
  if (posix_memalign(&memory, large ? huge_page : cache_line, bytes) != 0) throw std::bad_alloc();
  // Advice only: whole huge pages inside the block, and no harm where the system has none.
  if (large) madvise(memory, bytes / huge_page * huge_page, MADV_HUGEPAGE);
  return memory;
}

}  // namespace rapt
