#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "distributed/communicator/transfer.h"

namespace rapt::distributed {

/// Messages to one rank of a process that are known at one end only, in the order in which they
/// came.
class Mailbox {
 public:
  /// Which messages meet: those of one sender with one tag.
  struct Address {
    Index from;
    Index tag;
    auto operator<=>(const Address&) const = default;
  };

  // The transfer is matched if the other side was there first. Throws std::invalid_argument if the
  // two sides disagree about the number of bytes.
  std::shared_ptr<Transfer> send(const Address& address, std::span<const std::byte> bytes);
  std::shared_ptr<Transfer> receive(const Address& address, std::span<std::byte> bytes);

  /// When it returns no rank touches the bytes of the transfer any more.
  void withdraw(const Address& address, Transfer& transfer);

 private:
  // All transfers with one address wait for the same side: others would have met.
  using Waiting = std::deque<std::shared_ptr<Transfer>>;

  std::shared_ptr<Transfer> join(const Address& address, std::size_t bytes, bool sends);

  std::mutex mutex_;
  std::map<Address, Waiting> waiting_;
};

}  // namespace rapt::distributed
