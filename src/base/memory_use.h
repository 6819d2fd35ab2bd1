#pragma once

#include "rapt/tensor.h"

namespace rapt::detail {

/// Bytes of tensors and scratch that are held now, over all threads; blocks kept for later calls do
/// not count.
Index memory_in_use() noexcept;
/// The most that was held at a time since the start, or since forget_memory_peak.
Index memory_peak() noexcept;
void forget_memory_peak() noexcept;

/// All the memory that this machine has, swap included: more will never be given. 0: it does not
/// say.
Index machine_memory() noexcept;

}  // namespace rapt::detail
