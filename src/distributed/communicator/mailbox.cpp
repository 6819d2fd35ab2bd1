#include "distributed/communicator/mailbox.h"

#include <algorithm>

#include "base/check.h"
#include "distributed/communicator/message_text.h"

namespace rapt::distributed {
namespace {

void check_bytes(const Mailbox::Address& address, std::size_t sent, std::size_t expected) {
  detail::check(sent == expected, "rank ", address.from, " sends ", sent, " bytes (",
                tag_text(address.tag), ") where the receiver expects ", expected);
}

}  // namespace

/// The oldest transfer that waits for this side, taken out; a new one if there is none.
std::shared_ptr<Transfer> Mailbox::join(const Address& address, std::size_t bytes, bool sends) {
  const auto place = waiting_.try_emplace(address).first;
  Waiting& waiting = place->second;
  if (waiting.empty() || waiting.front()->sent_first() == sends) {
    waiting.push_back(std::make_shared<Transfer>(bytes, sends));
    return waiting.back();
  }
  std::shared_ptr<Transfer> oldest = waiting.front();
  check_bytes(address, sends ? bytes : oldest->bytes(), sends ? oldest->bytes() : bytes);
  waiting.pop_front();
  if (waiting.empty()) waiting_.erase(place);
  return oldest;
}

std::shared_ptr<Transfer> Mailbox::send(const Address& address, std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Transfer> transfer = join(address, bytes.size(), true);
  transfer->set_source(bytes.data());
  if (!transfer->sent_first()) transfer->match();
  return transfer;
}

std::shared_ptr<Transfer> Mailbox::receive(const Address& address, std::span<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Transfer> transfer = join(address, bytes.size(), false);
  transfer->set_target(bytes.data());
  if (transfer->sent_first()) transfer->match();
  return transfer;
}

void Mailbox::withdraw(const Address& address, Transfer& transfer) {
  const std::lock_guard lock(mutex_);
  transfer.withdraw();
  const auto place = waiting_.find(address);
  if (place == waiting_.end()) return;
  std::erase_if(place->second, [&](const auto& other) { return other.get() == &transfer; });
  if (place->second.empty()) waiting_.erase(place);
}

}  // namespace rapt::distributed
