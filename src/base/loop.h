#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "rapt/tensor.h"

namespace rapt {

/// Tasks that are taken in increasing order.
struct alignas(64) Share {
  std::atomic<Index> next = 0;
  Index end = 0;
};

/// One call of Threads::for_each_task. Helpers share ownership: one that comes after the call has
/// returned finds the loop closed and leaves without touching `run`.
class Loop {
 public:
  /// A worker begins with the share of its number.
  Loop(Index tasks, Index shares, const std::function<void(Index task, Index worker)>& run);

  /// Takes part as a worker of its own, if there is something left to do.
  void help();
  void work(Index worker);
  /// Lets nobody else in, waits for those inside, reports the first error.
  void close();

 private:
  Share& share(Index i) { return shares_[static_cast<std::size_t>(i)]; }
  void take(Share& share, Index worker);
  bool nothing_left() const;
  std::optional<Index> enter();
  void leave();

  std::vector<Share> shares_;
  const std::function<void(Index, Index)>& run_;
  std::mutex mutex_;
  std::condition_variable nobody_inside_;
  std::exception_ptr error_;
  Index last_worker_ = 0;  // the caller is worker 0
  std::atomic<Index> inside_ = 0;
  bool closed_ = false;
};

using SharedLoop = std::shared_ptr<Loop>;

/// Helpers that have done their part look out for the next loop for a moment before they go back to
/// sleep: waking a thread takes longer than a product of few rows, of which a model has dozens one
/// after the other.
class Standby {
 public:
  /// Gives a loop to helpers that look out, and says to how many.
  Index invite(const SharedLoop& loop, Index wanted);
  /// The next loop; null if none came in time.
  SharedLoop next();
  /// Lets helpers go.
  void close();

 private:
  SharedLoop accepted();

  std::mutex mutex_;
  std::vector<SharedLoop> invitations_;  // as many helpers will accept one
  std::atomic<Index> invited_ = 0;       // their number, to be looked at without the lock
  Index waiting_ = 0;                    // helpers that look out and have no invitation
  std::atomic<bool> closed_ = false;
};

}  // namespace rapt
