#include "distributed/communicator/transfer.h"

#include <cstring>
#include <thread>

namespace rapt::distributed {

bool Transfer::leave_matched_for(State next) {
  State matched = State::matched;
  return state_.compare_exchange_strong(matched, next, std::memory_order_acq_rel);
}

bool Transfer::copy() {
  if (state() != State::matched || !leave_matched_for(State::copying)) return false;
  if (bytes_ > 0) std::memmove(target_, source_, bytes_);
  state_.store(State::done, std::memory_order_release);
  return true;
}

void Transfer::withdraw() {
  if (leave_matched_for(State::withdrawn)) return;
  while (state() == State::copying) std::this_thread::yield();
}

}  // namespace rapt::distributed
