#pragma once

#include <memory>

#include "distributed/communicator/message_text.h"
#include "distributed/communicator/rank_group.h"
#include "rapt/distributed/communicator.h"

namespace rapt::distributed {

/// A rank that is a thread of this process.
class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<RankGroup> group, Index rank, std::string_view backend,
                     std::chrono::milliseconds timeout)
      : group_(std::move(group)), rank_(rank), backend_(backend), timeout_(timeout) {}

  Index rank() const override { return rank_; }
  Index size() const override { return group_->ranks(); }
  std::string_view backend() const override { return backend_; }
  std::unique_ptr<Message> send(Index to, Index tag, std::span<const std::byte> bytes) override;
  std::unique_ptr<Message> receive(Index from, Index tag, std::span<std::byte> bytes) override;
  void abort(std::string_view why) noexcept override { group_->fail(rank_, why); }
  std::chrono::milliseconds timeout() const override { return timeout_; }

 private:
  void check(const MessageEnd& end) const;

  std::shared_ptr<RankGroup> group_;
  Index rank_;
  std::string_view backend_;
  std::chrono::milliseconds timeout_;
};

}  // namespace rapt::distributed
