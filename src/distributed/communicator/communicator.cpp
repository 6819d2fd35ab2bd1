#include "rapt/distributed/communicator.h"

#include <algorithm>
#include <thread>

#include "base/clock.h"
#include "base/io/check_input.h"

namespace rapt::distributed {
namespace {

using detail::Clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

/// How long a waiting rank only yields: most messages come within that time, and waking a thread
/// takes about as long.
constexpr microseconds patience(100);
/// How long it sleeps before it looks at the clock again.
constexpr milliseconds longest_sleep(200);

template <class Duration>
Duration since(Clock::time_point start) {
  return std::chrono::duration_cast<Duration>(Clock::now() - start);
}

[[noreturn]] void fail_timeout(const Message& message, milliseconds timeout) {
  detail::fail_input(message.description(), ": not done after ",
                     static_cast<double>(timeout.count()) / 1000,
                     " s. The other rank has stopped, still computes, or makes other calls: look "
                     "at what it does, or raise the timeout.");
}

}  // namespace

Message::~Message() = default;

void Message::sleep(std::chrono::microseconds) { std::this_thread::yield(); }

std::string Message::description() const { return "a message"; }

Communicator::Communicator() : groups_(std::make_shared<Index>(0)) {}

Communicator::~Communicator() = default;

void Communicator::waited(std::chrono::nanoseconds) {}

void wait(Communicator& communicator, Message& message) {
  const auto start = Clock::now();
  const milliseconds timeout = communicator.timeout();
  while (!message.done()) {
    const auto waited = since<milliseconds>(start);
    if (waited >= timeout) fail_timeout(message, timeout);
    if (since<microseconds>(start) < patience)
      std::this_thread::yield();
    else
      message.sleep(std::min(longest_sleep, timeout - waited));
  }
  communicator.waited(since<std::chrono::nanoseconds>(start));
}

}  // namespace rapt::distributed
