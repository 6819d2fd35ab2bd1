#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "rapt/tensor.h"

namespace rapt::distributed {

/// A message under way. Its creator keeps its bytes where they are until it is done, and it
/// must not outlive its communicator. Destroying one that is not done ends the run, as its memory
/// may be written to later; while an exception is on its way out, that exception ends it.
class RAPT_API Message {
 public:
  virtual ~Message();
  /// Whether it has arrived, or has left. Lets the transport work, so a long computation calls it
  /// now and then. Throws std::runtime_error if the other rank has failed.
  virtual bool done() = 0;
  /// Gives the CPU to others until the message may be done, at most so long. Yields if a transport
  /// knows nothing better.
  virtual void sleep(std::chrono::microseconds at_most);
  /// For the text of errors: "rank 0 receiving 4096 bytes from rank 2 (tag 3)".
  virtual std::string description() const;
};

/// The ranks of a run, numbered from 0, as one of them sees them. Implement it for a transport of
/// your own; everything else in this namespace needs no more than these functions.
///
/// One thread of a rank uses it at a time. Every rank makes the same calls in the same order.
class RAPT_API Communicator {
 public:
  /// Your messages have tags from 0 to 32,767. Collective operations and the groups of split()
  /// use those above, which a transport carries, too.
  static constexpr Index tags = 32768;
  static constexpr Index transport_tags = 16 * tags;

  Communicator();
  virtual ~Communicator();
  virtual Index rank() const = 0;
  virtual Index size() const = 0;
  /// "self", "threads", "mpi", ...
  virtual std::string_view backend() const = 0;

  /// Messages from one rank to another with the same tag arrive in the order in which they were
  /// sent. Any number of bytes, 0 included; both sides give the same number.
  virtual std::unique_ptr<Message> send(Index to, Index tag, std::span<const std::byte> bytes) = 0;
  virtual std::unique_ptr<Message> receive(Index from, Index tag, std::span<std::byte> bytes) = 0;

  /// Ends the run on every rank, with this message.
  virtual void abort(std::string_view why) noexcept = 0;

  /// How long wait() waits for another rank before it gives up.
  virtual std::chrono::milliseconds timeout() const = 0;

  /// wait() tells how long it took, for communicators that count. Does nothing.
  virtual void waited(std::chrono::nanoseconds time);

 private:
  friend detail::Access;
  std::shared_ptr<Index> groups_;  // made of it so far
};

/// One rank alone, which may send to itself. What has not arrived when it waits never will, so the
/// timeout is 0.
RAPT_API std::unique_ptr<Communicator> self_communicator();

struct ThreadRanksOptions {
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

/// Runs `rank_main` on as many threads as ranks, all in this process, and returns when all have
/// returned. Rank 0 is the calling thread. If one throws, the others are woken with an error, and
/// its exception is rethrown here.
RAPT_API void run_ranks(Index ranks, const std::function<void(Communicator&)>& rank_main,
                        const ThreadRanksOptions& options = {});

/// The ranks that give the same `color`, as a communicator of their own: in the order of `key`,
/// and of their rank where keys are equal. Every rank calls it. The group uses `communicator`,
/// which outlives it; its messages never mix with those of other groups.
RAPT_API std::unique_ptr<Communicator> split(Communicator& communicator, Index color,
                                             Index key = 0);

/// Waits until the message is done. Throws std::runtime_error after the communicator's timeout.
RAPT_API void wait(Communicator& communicator, Message& message);

// Collective operations; every rank calls them. Results do not depend on timing: sums are added in
// the order of the ranks.

/// Returns when every rank has called it.
RAPT_API void barrier(Communicator& communicator);
/// The bytes of rank `root`, everywhere.
RAPT_API void broadcast(Communicator& communicator, Index root, std::span<std::byte> bytes);
/// `all` gets every rank's bytes, as many from each, in the order of the ranks. `mine` may be its
/// place in `all`.
RAPT_API void all_gather(Communicator& communicator, std::span<const std::byte> mine,
                         std::span<std::byte> all);
/// Sends to_send[r] to rank r and receives to_receive[r] from it. Both sides give the same size;
/// ranks that have nothing for each other exchange no message.
RAPT_API void all_to_all(Communicator& communicator,
                         std::span<const std::span<const std::byte>> to_send,
                         std::span<const std::span<std::byte>> to_receive);
/// Sums over all ranks, the same bits everywhere: ((r0 + r1) + r2) + ...
RAPT_API void all_reduce_sum(Communicator& communicator, std::span<float> numbers);
RAPT_API void all_reduce_sum(Communicator& communicator, std::span<double> numbers);

}  // namespace rapt::distributed
