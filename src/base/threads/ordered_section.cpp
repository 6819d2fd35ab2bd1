#include "base/threads/ordered_section.h"

#include <thread>
#include <utility>

namespace rapt {

void Turns::enter(Index place, Index turn) {
  const std::atomic<Index>& done = done_[static_cast<std::size_t>(place)];
  while (done.load(std::memory_order_acquire) != turn) {
    if (failed_.load(std::memory_order_acquire)) std::rethrow_exception(failure_);
    std::this_thread::yield();
  }
}

void Turns::leave(Index place) {
  done_[static_cast<std::size_t>(place)].fetch_add(1, std::memory_order_release);
}

void Turns::give_up(std::exception_ptr why) {
  std::call_once(failing_, [&] {
    failure_ = std::move(why);
    failed_.store(true, std::memory_order_release);
  });
}

}  // namespace rapt
