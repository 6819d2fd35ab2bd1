#pragma once

#include <exception>
#include <memory>
#include <utility>

#include "distributed/communicator/message_text.h"
#include "distributed/communicator/rank_group.h"
#include "rapt/distributed/communicator.h"

namespace rapt::distributed {

/// One end of a transfer.
class ThreadMessage final : public Message {
 public:
  ThreadMessage(std::shared_ptr<RankGroup> group, const MessageEnd& end,
                std::shared_ptr<Transfer> transfer);
  ~ThreadMessage() override;

  bool done() override;
  void sleep(std::chrono::microseconds at_most) override;
  std::string description() const override { return to_string(end_); }

 private:
  bool changed() const;
  bool copy();

  std::shared_ptr<RankGroup> group_;
  MessageEnd end_;
  std::shared_ptr<Transfer> transfer_;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace rapt::distributed
