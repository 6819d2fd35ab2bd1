#pragma once

#include <algorithm>
#include <functional>

#include "base/sizes.h"
#include "kernels/context.h"
#include "kernels/network_kernels.h"
#include "rapt/tensor.h"

namespace rapt::detail {

inline const NetworkKernels& network_kernels_of(const Context& context) {
  return *kernels_of(context).network;
}

/// Numbers that one task takes: enough to be worth a task, few enough to share out.
inline constexpr Index numbers_per_task = Index{1} << 15;

/// Calls run(first, count) for stretches that cover 0 .. numbers - 1, on all threads.
inline void for_each_stretch(const Context& context, Index numbers,
                             const std::function<void(Index first, Index count)>& run) {
  for_each_task(context, divide_up(numbers, numbers_per_task), [&](Index task, Index) {
    const Index first = task * numbers_per_task;
    run(first, std::min(numbers_per_task, numbers - first));
  });
}

/// The same for rows of `width` numbers.
inline void for_each_row_block(const Context& context, Index rows, Index width,
                               const std::function<void(Index first, Index count)>& run) {
  const Index together = std::max<Index>(1, numbers_per_task / std::max<Index>(1, width));
  for_each_task(context, divide_up(rows, together), [&](Index task, Index) {
    const Index first = task * together;
    run(first, std::min(together, rows - first));
  });
}

/// Columns that one task takes where rows have to be added in order.
inline constexpr Index columns_per_task = 128;

/// Calls run(first, count) for blocks of columns, on all threads.
inline void for_each_column_block(const Context& context, Index width,
                                  const std::function<void(Index first, Index count)>& run) {
  for_each_task(context, divide_up(width, columns_per_task), [&](Index task, Index) {
    const Index first = task * columns_per_task;
    run(first, std::min(columns_per_task, width - first));
  });
}

/// to += the sums of `rows` rows as wide as `to`, in f64 from the first row to the last.
void add_row_sums(const float* x, Index rows, Tensor& to, const Context& context);

}  // namespace rapt::detail
