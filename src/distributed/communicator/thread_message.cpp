#include "distributed/communicator/thread_message.h"

#include "base/io/check_input.h"

namespace rapt::distributed {
namespace {

Mailbox& mailbox_of(RankGroup& group, const MessageEnd& end) {
  return group.mailbox(end.sends() ? end.peer : end.rank);
}

Mailbox::Address address_of(const MessageEnd& end) {
  return {end.sends() ? end.rank : end.peer, end.tag};
}

}  // namespace

ThreadMessage::ThreadMessage(std::shared_ptr<RankGroup> group, const MessageEnd& end,
                             std::shared_ptr<Transfer> transfer)
    : group_(std::move(group)), end_(end), transfer_(std::move(transfer)) {
  if (transfer_->state() != Transfer::State::posted) group_->wake(end_.peer);
}

ThreadMessage::~ThreadMessage() {
  if (transfer_->state() == Transfer::State::done) return;
  mailbox_of(*group_, end_).withdraw(address_of(end_), *transfer_);
  if (transfer_->state() == Transfer::State::done) return;  // copied meanwhile by the other rank
  if (std::uncaught_exceptions() <= exceptions_) group_->fail(end_.rank, unfinished_text(end_));
}

bool ThreadMessage::copy() {
  if (!transfer_->copy()) return false;
  group_->wake(end_.peer);
  return true;
}

bool ThreadMessage::done() {
  if (transfer_->state() == Transfer::State::done) return true;
  // In this order: a rank fails before it ends, and sends before it ends.
  const bool peer_ended = group_->ended(end_.peer);
  group_->check();
  if (copy()) return true;
  const auto state = transfer_->state();
  if (peer_ended && (state == Transfer::State::posted || state == Transfer::State::withdrawn))
    detail::fail_input(to_string(end_), ": rank ", end_.peer,
                       " has returned without its side of this message");
  return state == Transfer::State::done;
}

bool ThreadMessage::changed() const {
  const auto state = transfer_->state();
  return state == Transfer::State::matched || state == Transfer::State::done || group_->failed() ||
         group_->ended(end_.peer);
}

void ThreadMessage::sleep(std::chrono::microseconds at_most) {
  group_->sleep(end_.rank, at_most, [this] { return changed(); });
}

}  // namespace rapt::distributed
