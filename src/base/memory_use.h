#pragma once

#include "rapt/tensor.h"

namespace rapt::detail {

/// Bytes of tensors and scratch that are held now, over all threads; blocks kept for later calls do
/// not count.
Index memory_in_use() noexcept;
/// The most that was held at a time since the start, or since forget_memory_peak.
Index memory_peak() noexcept;
void forget_memory_peak() noexcept;

/// The memory of this machine, swap included. 0: the system does not report it.
Index machine_memory() noexcept;

}  // namespace rapt::detail
