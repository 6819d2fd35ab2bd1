#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "base/indexed_vector.h"
#include "distributed/communicator/mailbox.h"

namespace rapt::distributed {

/// What the ranks of one process share: their mailboxes, where they sleep, and the first failure.
class RankGroup {
 public:
  explicit RankGroup(Index ranks) : places_(ranks) {}

  Index ranks() const { return std::ssize(places_); }
  Mailbox& mailbox(Index rank) { return places_[rank].mailbox; }

  /// The rank sleeps until `ready`, at most so long. The rank that makes `ready` true wakes it
  /// afterwards.
  void sleep(Index rank, std::chrono::microseconds at_most, const std::function<bool()>& ready);
  void wake(Index rank);

  /// The rank makes no more calls.
  void end(Index rank);
  bool ended(Index rank) const { return places_[rank].ended.load(std::memory_order_acquire); }

  /// The run has failed: every rank wakes, and check() throws. The first failure counts.
  void fail(Index rank, std::string_view why, std::exception_ptr exception = nullptr) noexcept;
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// Throws std::runtime_error, "rank 2 failed: ...", if a rank has.
  void check() const;
  /// At the end: the exception that a rank failed with.
  void rethrow() const;

 private:
  struct Place {
    Mailbox mailbox;
    std::atomic<bool> ended = false;
    std::mutex mutex;
    std::condition_variable changed;
  };
  struct Failure {
    Index rank = 0;
    std::string why;
    std::exception_ptr exception;
  };

  void keep(Index rank, std::string_view why, std::exception_ptr exception);
  void wake_all();

  detail::IndexedVector<Place> places_;
  std::atomic<bool> failed_ = false;
  std::mutex failing_;
  Failure failure_;  // written before failed_; its exception until the ranks have ended
};

}  // namespace rapt::distributed
