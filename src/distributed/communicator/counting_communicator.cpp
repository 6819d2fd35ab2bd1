#include "base/access.h"
#include "rapt/distributed/counting.h"

namespace rapt::distributed {

CountingCommunicator::CountingCommunicator(Communicator& counted) : counted_(counted) {
  // Groups of either take tags of the same transport.
  detail::Access::groups(*this) = detail::Access::groups(counted);
}

std::unique_ptr<Message> CountingCommunicator::send(Index to, Index tag,
                                                    std::span<const std::byte> bytes) {
  auto message = counted_.send(to, tag, bytes);
  if (to != rank()) {
    ++counts_.messages_sent;
    counts_.bytes_sent += std::ssize(bytes);
  }
  return message;
}

std::unique_ptr<Message> CountingCommunicator::receive(Index from, Index tag,
                                                       std::span<std::byte> bytes) {
  auto message = counted_.receive(from, tag, bytes);
  if (from != rank()) counts_.bytes_received += std::ssize(bytes);
  return message;
}

void CountingCommunicator::waited(std::chrono::nanoseconds time) {
  counts_.waited += time;
  counted_.waited(time);
}

}  // namespace rapt::distributed
