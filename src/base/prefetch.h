#pragma once

#include "rapt/tensor.h"

namespace rapt::detail {

/// Prefetches the cache lines of so many bytes into L2.
///
/// GCC takes a function that does nothing but prefetch for one without effect and drops calls of
/// it, hence the empty statement: compilers may not leave it out.
inline void prefetch_lines(const void* from, Index bytes) {
  const auto* lines = static_cast<const char*>(from);
  for (Index at = 0; at < bytes; at += 64) {
    __builtin_prefetch(lines + at, 0, 2);
    asm volatile("");
  }
}

}  // namespace rapt::detail
