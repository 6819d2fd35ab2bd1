#pragma once

#include <atomic>
#include <functional>
#include <mutex>

#include "rapt/tensor.h"

namespace rapt::detail {

class ThreadPool;

/// A number of threads. The first loop of more than one task starts them, all at once.
class Threads {
 public:
  /// Throws std::invalid_argument unless 1 <= count <= max_count.
  explicit Threads(Index count);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  static constexpr Index max_count = 1024;
  Index count() const { return count_; }

  /// Runs tasks 0 .. tasks - 1, started in increasing order, by the caller and up to count() - 1
  /// helpers; `worker` is below count() and belongs to one thread until the loop ends.
  ///
  /// Throws std::system_error if the threads cannot start; a later call tries again.
  /// The first exception of a task is rethrown here and tasks not yet started are left out. The
  /// caller never waits for a helper that has not begun, so loops may nest and several threads may
  /// share one Threads.
  void for_each_task(Index tasks, const std::function<void(Index task, Index worker)>& run) const;
  /// The same, but each worker begins with a run of tasks of its own and helps others when it is
  /// done. The caller's run is the same in every loop of as many tasks, and so is that of the
  /// helper if there is one: what they read last time may still be in their own cache.
  /// Several helpers may change places.
  void for_each_task_at_home(Index tasks,
                             const std::function<void(Index task, Index worker)>& run) const;

 private:
  ThreadPool& pool() const;
  void run_loop(Index tasks, Index shares,
                const std::function<void(Index task, Index worker)>& run) const;

  Index count_;
  mutable std::mutex starting_;
  mutable std::atomic<ThreadPool*> pool_ = nullptr;
};

}  // namespace rapt::detail
