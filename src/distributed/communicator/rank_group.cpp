#include "distributed/communicator/rank_group.h"

#include <utility>

#include "base/io/check_input.h"

namespace rapt::distributed {

void RankGroup::sleep(Index rank, std::chrono::microseconds at_most,
                      const std::function<bool()>& ready) {
  Place& place = places_[rank];
  std::unique_lock lock(place.mutex);
  place.changed.wait_for(lock, at_most, ready);
}

void RankGroup::wake(Index rank) {
  Place& place = places_[rank];
  // A rank that found nothing ready sleeps by the time the mutex is free.
  { const std::lock_guard lock(place.mutex); }
  place.changed.notify_all();
}

void RankGroup::wake_all() {
  for (Index rank = 0; rank < ranks(); ++rank) wake(rank);
}

void RankGroup::end(Index rank) {
  places_[rank].ended.store(true, std::memory_order_release);
  wake_all();
}

void RankGroup::keep(Index rank, std::string_view why, std::exception_ptr exception) {
  const std::lock_guard lock(failing_);
  if (!failed()) {
    failure_ = {rank, std::string(why), std::move(exception)};
    failed_.store(true, std::memory_order_release);
  } else if (failure_.rank == rank && !failure_.exception) {
    failure_.exception = std::move(exception);  // why the rank destroyed messages, or aborted
  }
}

void RankGroup::fail(Index rank, std::string_view why, std::exception_ptr exception) noexcept {
  keep(rank, why, std::move(exception));
  wake_all();
}

void RankGroup::check() const {
  if (failed()) detail::fail_input("rank ", failure_.rank, " failed: ", failure_.why);
}

void RankGroup::rethrow() const {
  if (failed() && failure_.exception) std::rethrow_exception(failure_.exception);
  check();
}

}  // namespace rapt::distributed
