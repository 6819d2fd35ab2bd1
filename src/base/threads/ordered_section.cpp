#include "base/threads/ordered_section.h"

#include <thread>
#include <utility>

namespace rapt::detail {

void OrderedSection::enter(Index place, Index order) {
  const std::atomic<Index>& done = done_[place];
  while (done.load(std::memory_order_acquire) != order) {
    if (failed_.load(std::memory_order_acquire)) std::rethrow_exception(failure_);
    std::this_thread::yield();
  }
}

void OrderedSection::release(Index place) { done_[place].fetch_add(1, std::memory_order_release); }

void OrderedSection::abort(std::exception_ptr why) {
  std::call_once(failing_, [&] {
    failure_ = std::move(why);
    failed_.store(true, std::memory_order_release);
  });
}

}  // namespace rapt::detail
