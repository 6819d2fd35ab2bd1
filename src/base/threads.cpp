#include "base/threads.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "base/arena.h"
#include "base/check.h"
#include "base/fpmode.h"
#include "base/loop.h"
#include "rapt/context.h"

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

/// A loop on its way to a helper, and where that helper looks for the next ones.
struct Message {
  SharedLoop loop;
  std::shared_ptr<Standby> standby;  // null: it does not look
  /// Set by the helper that gets it, or by a sender that takes it back; whoever is second leaves it
  /// alone.
  std::atomic<bool> settled = false;
};

void receive(void* sent) {
  RAPT_ACQUIRE(sent);
  const std::unique_ptr<std::shared_ptr<Message>> message(
      static_cast<std::shared_ptr<Message>*>(sent));
  Message& letter = **message;
  if (letter.settled.exchange(true)) return;
  letter.loop->help();
  if (letter.standby == nullptr) return;
  while ((letter.loop = letter.standby->next()) != nullptr) letter.loop->help();
}

/// Throws if no helper will come.
void send(Arena& arena, const SharedLoop& loop, const std::shared_ptr<Standby>& standby) {
  const auto message = std::make_shared<Message>();
  message->loop = loop;
  message->standby = standby;
  auto* const sent = new std::shared_ptr<Message>(message);
  RAPT_RELEASE(sent);
  try {
    arena.enqueue(receive, sent);  // receive owns it now
  } catch (...) {
    // TBB throws when it can start no thread, but has queued the task by then, and a thread that it
    // has may run it. So `sent` has to stay, even if nobody comes for it.
    if (!message->settled.exchange(true)) throw;
  }
}

}  // namespace

struct Threads::Pool {
  ~Pool() {
    if (standby) standby->close();
  }

  std::once_flag once;
  std::unique_ptr<Arena> arena;
  std::shared_ptr<Standby> standby;  // null where helpers would take CPUs from each other
};

Threads::Threads(Index count) : count_(count), pool_(std::make_unique<Pool>()) {
  check(1 <= count && count <= max_count, "threads: ", count, " given, expected 1 to ", max_count);
}

Threads::~Threads() = default;

Arena& Threads::arena() const {
  std::call_once(pool_->once, [this] {
    pool_->arena = std::make_unique<Arena>(static_cast<int>(count_ - 1));
    if (count_ <= usable_cpus())
      pool_->standby = std::make_shared<Standby>(pool_->arena->helpers());
  });
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
  Index missing = 0;  // helpers that have to be sent for
  try {
    Arena& workers = arena();
    missing = std::min<Index>(workers.helpers(), tasks - 1);
    if (pool_->standby) missing = pool_->standby->invite(loop, std::exchange(missing, 0));
    for (; missing > 0; --missing) send(workers, loop, pool_->standby);
  } catch (...) {
    // Fewer helpers, or none: the caller can do all tasks itself, with the same bits.
    if (pool_->standby) pool_->standby->excuse(missing);
  }
  loop->work(0);
  loop->close(pool_->standby ? Loop::Wait::watching : Loop::Wait::asleep);
}

}  // namespace rapt
