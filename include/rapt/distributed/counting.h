#pragma once

#include <chrono>
#include <memory>

#include "rapt/distributed/communicator.h"

namespace rapt::distributed {

/// What one rank has sent to others, and how long wait() has kept it.
struct MessageCounts {
  Index messages_sent = 0;
  Index bytes_sent = 0;
  Index bytes_received = 0;
  std::chrono::nanoseconds waited{0};
};

/// Another communicator, which outlives it, with counters: what attention over ranks sends, and
/// what part of its time it waits. Messages of a rank to itself do not count.
class RAPT_API CountingCommunicator final : public Communicator {
 public:
  explicit CountingCommunicator(Communicator& counted);

  const MessageCounts& counts() const { return counts_; }
  void reset() { counts_ = {}; }

  Index rank() const override { return counted_.rank(); }
  Index size() const override { return counted_.size(); }
  std::string_view backend() const override { return counted_.backend(); }
  std::unique_ptr<Message> send(Index to, Index tag, std::span<const std::byte> bytes) override;
  std::unique_ptr<Message> receive(Index from, Index tag, std::span<std::byte> bytes) override;
  void abort(std::string_view why) noexcept override { counted_.abort(why); }
  std::chrono::milliseconds timeout() const override { return counted_.timeout(); }
  void waited(std::chrono::nanoseconds time) override;

 private:
  Communicator& counted_;
  MessageCounts counts_;
};

}  // namespace rapt::distributed
