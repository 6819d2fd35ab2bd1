#include "cli/ranks/rank_network.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

namespace rapt::cli {
namespace {

using distributed::Communicator;
using Clock = std::chrono::steady_clock;

double since_us(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// Ranks 0 and 1 send each other so many bytes: the shortest of several times.
double exchange_us(Communicator& communicator, std::size_t bytes, int times) {
  std::vector<std::byte> out(bytes), in(bytes);
  const Index peer = 1 - communicator.rank();
  double best = 1e300;
  for (int i = 0; i < times; ++i) {
    const auto start = Clock::now();
    const auto receiving = communicator.receive(peer, 0, in);
    const auto sending = communicator.send(peer, 0, out);
    distributed::wait(communicator, *receiving);
    distributed::wait(communicator, *sending);
    best = std::min(best, since_us(start));
  }
  return best;
}

}  // namespace

RankNetwork measure_network(Communicator& communicator) {
  double times[2] = {};
  constexpr std::size_t large = std::size_t{4} << 20;
  if (communicator.size() > 1 && communicator.rank() < 2) {
    times[0] = exchange_us(communicator, 8, 50);
    times[1] = exchange_us(communicator, large, 8);
  }
  distributed::broadcast(communicator, 0, std::as_writable_bytes(std::span(times)));
  if (communicator.size() == 1) return {};
  return {.gbits = large * 8 / std::max(1e-3, times[1] - times[0]) * 1e-3, .latency_us = times[0]};
}

void quiet_barrier(Communicator& communicator) {
  const auto wait_quietly = [](distributed::Message& message) {
    while (!message.done()) std::this_thread::sleep_for(std::chrono::microseconds(200));
  };
  const auto tell = [&](Index to) { wait_quietly(*communicator.send(to, 0, {})); };
  const auto hear = [&](Index from) { wait_quietly(*communicator.receive(from, 0, {})); };
  if (communicator.rank() != 0) {
    tell(0);
    hear(0);
    return;
  }
  for (Index rank = 1; rank < communicator.size(); ++rank) hear(rank);
  for (Index rank = 1; rank < communicator.size(); ++rank) tell(rank);
}

}  // namespace rapt::cli
