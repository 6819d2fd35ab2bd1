#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "rapt/distributed/communicator.h"

namespace rapt::detail {

using distributed::Communicator;
using distributed::Message;

/// Messages under way that are waited for together. It must be destroyed before their memory is.
class MessageSet {
 public:
  explicit MessageSet(Communicator& communicator) : communicator_(communicator) {}

  void send(Index to, Index tag, std::span<const std::byte> bytes) {
    messages_.push_back(communicator_.send(to, tag, bytes));
  }
  void receive(Index from, Index tag, std::span<std::byte> bytes) {
    messages_.push_back(communicator_.receive(from, tag, bytes));
  }
  bool empty() const { return messages_.empty(); }
  /// Lets them move on.
  void progress() {
    for (const std::unique_ptr<Message>& message : messages_) message->done();
  }
  void wait() {
    for (const std::unique_ptr<Message>& message : messages_)
      distributed::wait(communicator_, *message);
    messages_.clear();
  }

 private:
  Communicator& communicator_;
  std::vector<std::unique_ptr<Message>> messages_;
};

}  // namespace rapt::detail
