#include "base/threads/task_loop.h"

#include <algorithm>
#include <utility>

#include "base/flush_denormals.h"

namespace rapt::detail {

TaskLoop::TaskLoop(Index tasks, Index shares, const std::function<void(Index, Index)>& run)
    : shares_(shares), run_(run) {
  for (Index i = 0; i < shares; ++i) {
    share(i).next = tasks * i / shares;
    share(i).end = tasks * (i + 1) / shares;
  }
}

void TaskLoop::work(Index worker) noexcept {
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

bool TaskLoop::nothing_left() const {
  return std::ranges::all_of(shares_, [](const Share& share) {
    return share.next.load(std::memory_order_relaxed) >= share.end;
  });
}

void TaskLoop::rethrow_error() {
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void TaskLoop::take(Share& share, Index worker) {
  for (Index task; (task = share.next.fetch_add(1, std::memory_order_relaxed)) < share.end;)
    run_(task, worker);
}

}  // namespace rapt::detail
