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
  enum class Wait { watching, asleep };
  /// Lets nobody else in, waits for those inside, reports the first error.
  void close(Wait wait);

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
  /// At most so many helpers are about at a time.
  explicit Standby(Index most) : most_(most) {}

  /// Gives a loop to helpers that look out. Returns how many others to send for, which count as
  /// being about from now on: messages to helpers that are busy would pile up.
  Index invite(const SharedLoop& loop, Index wanted);
  /// So many could not be sent for.
  void excuse(Index helpers);
  /// The next loop; null if none came in time, and the helper is not about any more.
  SharedLoop next();
  /// Lets helpers go.
  void close();

 private:
  SharedLoop accepted();

  const Index most_;
  std::mutex mutex_;
  std::vector<SharedLoop> invitations_;  // as many helpers will accept one
  std::atomic<Index> invited_ = 0;       // their number, to be looked at without the lock
  Index waiting_ = 0;                    // helpers that look out and have no invitation
  Index about_ = 0;                      // helpers at work, looking out or sent for
  std::atomic<bool> closed_ = false;
};

}  // namespace rapt
