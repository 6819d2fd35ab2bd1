#pragma once

#include <atomic>
#include <cstddef>

#include "rapt/tensor.h"

namespace rapt::distributed {

/// A message between two ranks of one process: where its bytes are at both ends.
///
/// Once both ends are known, the first rank that asks copies the bytes, straight from one place to
/// the other: the receiver if it is there in time, the sender if it waits while the receiver
/// computes.
class Transfer {
 public:
  enum class State { posted, matched, copying, done, withdrawn };

  Transfer(std::size_t bytes, bool sent_first) : bytes_(bytes), sent_first_(sent_first) {}

  std::size_t bytes() const { return bytes_; }
  /// Whether the sender came before the receiver.
  bool sent_first() const { return sent_first_; }
  State state() const { return state_.load(std::memory_order_acquire); }

  void set_source(const std::byte* source) { source_ = source; }
  void set_target(std::byte* target) { target_ = target; }
  /// Both ends are set.
  void match() { state_.store(State::matched, std::memory_order_release); }
  /// Copies if both ends are known and no rank has begun to. Returns whether it did.
  bool copy();
  /// When it returns no rank touches the bytes any more. For a message that is not in a mailbox.
  void withdraw();

 private:
  bool leave_matched_for(State next);

  const std::size_t bytes_;
  const bool sent_first_;
  const std::byte* source_ = nullptr;
  std::byte* target_ = nullptr;
  std::atomic<State> state_ = State::posted;
};

}  // namespace rapt::distributed
