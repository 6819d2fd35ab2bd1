#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <mutex>

#include "base/indexed_vector.h"
#include "rapt/tensor.h"

namespace rapt::detail {

/// Tasks that are taken in increasing order.
struct alignas(64) Share {
  std::atomic<Index> next = 0;
  Index end = 0;
};

/// The tasks of one call of Threads::for_each_task, and the first error among them.
class TaskLoop {
 public:
  /// A worker begins with the share of its number.
  TaskLoop(Index tasks, Index shares, const std::function<void(Index task, Index worker)>& run);

  /// Runs tasks until none is left to begin.
  void work(Index worker) noexcept;
  bool nothing_left() const;
  /// Throws the first error of a task; call it when every worker has returned.
  void rethrow_error();

 private:
  Share& share(Index i) { return shares_[i]; }
  void take(Share& share, Index worker);

  IndexedVector<Share> shares_;
  const std::function<void(Index, Index)>& run_;
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace rapt::detail
