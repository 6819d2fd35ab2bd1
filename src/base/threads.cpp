#include "base/threads.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/arena.h"
#include "base/check.h"
#include "base/fpmode.h"

// What TBB does between enqueue and call, told to the thread sanitizer.
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define RAPT_RELEASE(p) __tsan_release(p)
#define RAPT_ACQUIRE(p) __tsan_acquire(p)
extern "C" RAPT_API const char* __tsan_default_suppressions() {
  return "called_from_lib:libtbb.so";
}
#else
#define RAPT_RELEASE(p) static_cast<void>(p)
#define RAPT_ACQUIRE(p) static_cast<void>(p)
#endif

namespace rapt {
namespace {

/// Tasks that are taken in increasing order.
struct alignas(64) Share {
  std::atomic<Index> next = 0;
  Index end = 0;
};

/// One call of for_each_task. Helpers share ownership: one that TBB starts after the call has
/// returned finds the loop closed and leaves without touching `run`.
class Loop {
 public:
  Loop(Index tasks, Index shares, const std::function<void(Index, Index)>& run)
      : shares_(static_cast<std::size_t>(shares)), run_(run) {
    for (Index i = 0; i < shares; ++i) {
      share(i).next = tasks * i / shares;
      share(i).end = tasks * (i + 1) / shares;
    }
  }

  void help() {
    if (const std::optional<Index> worker = enter()) {
      work(*worker);
      leave();
    }
  }

  void work(Index worker) {
    const FlushDenormals guard;
    try {
      for (Index i = 0; i < std::ssize(shares_); ++i)
        take(share((worker + i) % std::ssize(shares_)), worker);
    } catch (...) {
      for (Share& share : shares_) share.next.store(share.end, std::memory_order_relaxed);
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }

  /// Lets nobody else in, waits for those inside, reports the first error.
  void close() {
    std::unique_lock lock(mutex_);
    closed_ = true;
    nobody_inside_.wait(lock, [this] { return inside_ == 0; });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  Share& share(Index i) { return shares_[static_cast<std::size_t>(i)]; }

  void take(Share& share, Index worker) {
    for (Index task; (task = share.next.fetch_add(1, std::memory_order_relaxed)) < share.end;)
      run_(task, worker);
  }

  bool nothing_left() const {
    return std::ranges::all_of(shares_, [](const Share& share) {
      return share.next.load(std::memory_order_relaxed) >= share.end;
    });
  }

  std::optional<Index> enter() {
    const std::lock_guard lock(mutex_);
    if (closed_ || nothing_left()) return std::nullopt;
    ++inside_;
    return ++last_worker_;
  }

  void leave() {
    const std::lock_guard lock(mutex_);
    if (--inside_ == 0) nobody_inside_.notify_one();
  }

  std::vector<Share> shares_;
  const std::function<void(Index, Index)>& run_;
  std::mutex mutex_;
  std::condition_variable nobody_inside_;
  std::exception_ptr error_;
  Index last_worker_ = 0;  // the caller is worker 0
  Index inside_ = 0;
  bool closed_ = false;
};

using SharedLoop = std::shared_ptr<Loop>;

void receive(void* message) {
  RAPT_ACQUIRE(message);
  const std::unique_ptr<SharedLoop> loop(static_cast<SharedLoop*>(message));
  (*loop)->help();
}

void send(Arena& arena, const SharedLoop& loop) {
  auto message = std::make_unique<SharedLoop>(loop);
  RAPT_RELEASE(message.get());
  arena.enqueue(receive, message.get());
  static_cast<void>(message.release());  // receive owns it now
}

}  // namespace

struct Threads::Pool {
  std::once_flag once;
  std::unique_ptr<Arena> arena;
};

Threads::Threads(Index count) : count_(count), pool_(std::make_unique<Pool>()) {
  check(1 <= count && count <= max_count, "threads: ", count, " given, expected 1 to ", max_count);
}

Threads::~Threads() = default;

Arena& Threads::arena() const {
  std::call_once(pool_->once,
                 [this] { pool_->arena = std::make_unique<Arena>(static_cast<int>(count_ - 1)); });
  return *pool_->arena;
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
  const auto loop = std::make_shared<Loop>(tasks, shares, run);
  const Index helpers = std::min(count_, tasks) - 1;
  try {
    for (Index helper = 0; helper < helpers; ++helper) send(arena(), loop);
  } catch (...) {
    // Fewer helpers, or none: the caller can do all tasks itself, with the same bits.
  }
  loop->work(0);
  loop->close();
}

}  // namespace rapt
