#pragma once

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "base/threads/task_loop.h"

namespace rapt::detail {

/// Helper threads that take part in loops. The constructor starts them all, which is the only
/// moment that can fail: afterwards a loop allocates nothing and starts nothing.
class ThreadPool {
 public:
  /// What a thread does before it sleeps: waking it takes longer than a product of few rows, of
  /// which a model runs dozens in a row. With more threads than CPUs, spinning would take time from
  /// those that work, so they yield instead.
  enum class Wait { spin, yield };

  /// Throws std::system_error unless all helpers start; those that did have ended by then.
  ThreadPool(Index helpers, Wait wait);
  /// Ends the helpers. Not for a pool that is not alive.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  Index helpers() const { return static_cast<Index>(threads_.size()); }
  /// False in a child of fork(), which has this memory but not the threads. Such a pool can be
  /// neither used nor destroyed: a helper may have held its mutex at that moment.
  bool alive() const;

  /// Runs the loop by the caller, as worker 0, and by at most so many helpers, as workers 1, 2, ...
  /// Never waits for a helper that has not begun, so loops may nest, and several threads may call.
  void run(TaskLoop& loop, Index helpers);

 private:
  /// A loop that helpers may enter. It lives in run(), and `mutex_` guards it.
  struct Offer {
    TaskLoop& loop;
    Index wanted;                   // helpers that may still enter
    Index entered = 0;              // helpers so far
    std::atomic<Index> inside = 0;  // helpers now, to be read without the mutex
    Offer* older = nullptr;
  };

  static void* begin(void* pool);
  void help();
  bool wait_for_offer(std::unique_lock<std::mutex>& lock);
  Offer* enter_newest();
  void publish(Offer& offer);
  Index sleepers_to_wake() const;
  void wake(Index sleepers);
  void withdraw(Offer& offer);
  void stop();

  const Wait wait_;
  const int forks_;
  std::vector<pthread_t> threads_;
  std::mutex mutex_;
  std::condition_variable offered_;
  std::condition_variable left_;
  Offer* newest_ = nullptr;
  std::atomic<Index> wanted_ = 0;  // the sum over all offers, to be read without the mutex
  std::atomic<bool> stopping_ = false;
  Index spinning_ = 0;
  Index asleep_ = 0;
};

}  // namespace rapt::detail
