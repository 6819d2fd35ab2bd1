#pragma once

#include <atomic>
#include <exception>
#include <mutex>

#include "base/indexed_vector.h"
#include "rapt/tensor.h"

namespace rapt::detail {

/// Fixes the order in which tasks add to shared sums, so that the bits do not depend on the number
/// of threads: a task that enters a place waits until all tasks before it have released the place.
///
/// It cannot deadlock if tasks start in ascending order and wait only for tasks before them.
class OrderedSection {
 public:
  explicit OrderedSection(Index places) : done_(places) {}

  /// `order` counts the tasks that enter this place before.
  void enter(Index place, Index order);
  void release(Index place);
  /// A task ended in an exception and will never release: tasks that wait get one too, instead of
  /// waiting forever.
  void abort(std::exception_ptr why);

 private:
  IndexedVector<std::atomic<Index>> done_;
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_;
  std::once_flag failing_;
};

}  // namespace rapt::detail
