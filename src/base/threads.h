#pragma once

#include <functional>
#include <memory>

#include "rapt/tensor.h"

namespace rapt {

class Arena;

/// A number of threads and the oneTBB workers behind it, created on first use.
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
  /// The first exception of a task is rethrown here and tasks not yet started are left out. The
  /// caller never waits for a helper that has not begun, so loops may nest and several threads may
  /// share one Threads.
  void for_each_task(Index tasks, const std::function<void(Index task, Index worker)>& run) const;
  /// The same, but each worker begins with a run of tasks of its own, the same in every loop of as
  /// many tasks, and helps others when it is done: what it read last time may still lie in a cache
  /// that the others do not share.
  void for_each_task_at_home(Index tasks,
                             const std::function<void(Index task, Index worker)>& run) const;

 private:
  struct Pool;
  Arena& arena() const;
  void run_loop(Index tasks, Index shares,
                const std::function<void(Index task, Index worker)>& run) const;

  Index count_;
  mutable std::unique_ptr<Pool> pool_;
};

}  // namespace rapt
