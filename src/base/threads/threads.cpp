#include "base/threads/threads.h"

#include <algorithm>

#include "base/check.h"
#include "base/flush_denormals.h"
#include "base/threads/task_loop.h"
#include "base/threads/thread_pool.h"
#include "rapt/context.h"

namespace rapt::detail {

Threads::Threads(Index count) : count_(count) {
  check(1 <= count && count <= max_count, "threads: ", count, " given, expected 1 to ", max_count);
}

Threads::~Threads() {
  const ThreadPool* const pool = pool_;
  if (pool != nullptr && pool->alive()) delete pool;
}

ThreadPool& Threads::pool() const {
  ThreadPool* pool = pool_.load(std::memory_order_acquire);
  if (pool != nullptr && pool->alive()) return *pool;
  const std::lock_guard lock(starting_);
  pool = pool_;
  if (pool == nullptr || !pool->alive()) {  // that of a parent process stays where it is
    const bool enough_cpus = count_ <= usable_cpus();
    pool =
        new ThreadPool(count_ - 1, enough_cpus ? ThreadPool::Wait::spin : ThreadPool::Wait::yield);
    pool_.store(pool, std::memory_order_release);
  }
  return *pool;
}

void Threads::for_each_task(Index tasks, const std::function<void(Index, Index)>& run) const {
  run_loop(tasks, 1, run);
}

void Threads::for_each_task_at_home(Index tasks,
                                    const std::function<void(Index, Index)>& run) const {
  run_loop(tasks, std::min(count_, tasks), run);
}

void Threads::run_loop(Index tasks, Index shares,
                       const std::function<void(Index, Index)>& run) const {
  if (count_ == 1 || tasks <= 1) {
    const FlushDenormals guard;
    for (Index task = 0; task < tasks; ++task) run(task, 0);
    return;
  }
  TaskLoop loop(tasks, shares, run);
  pool().run(loop, tasks - 1);
}

}  // namespace rapt::detail
