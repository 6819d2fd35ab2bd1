#include "distributed/communicator/thread_communicator.h"

#include <thread>
#include <vector>

#include "base/check.h"
#include "base/sizes.h"
#include "distributed/communicator/thread_message.h"

namespace rapt::distributed {
namespace {

constexpr Index most_ranks = 4096;

using RankMain = std::function<void(Communicator&)>;

/// Runs one rank; what it throws becomes the failure of the run.
void run_rank(const std::shared_ptr<RankGroup>& group, Index rank, const RankMain& rank_main,
              std::chrono::milliseconds timeout) noexcept {
  try {
    ThreadCommunicator communicator(group, rank, "threads", timeout);
    rank_main(communicator);
  } catch (const std::exception& error) {
    group->fail(rank, error.what(), std::current_exception());
  } catch (...) {
    group->fail(rank, "an exception without a text", std::current_exception());
  }
  group->end(rank);
}

/// Threads for all ranks but 0. Those that cannot start fail the run.
std::vector<std::jthread> start_ranks(const std::shared_ptr<RankGroup>& group,
                                      const RankMain& rank_main,
                                      std::chrono::milliseconds timeout) {
  std::vector<std::jthread> threads;
  threads.reserve(detail::to_size(group->ranks()));
  Index rank = 1;
  try {
    for (; rank < group->ranks(); ++rank)
      threads.emplace_back([&, rank, timeout] { run_rank(group, rank, rank_main, timeout); });
  } catch (const std::exception& error) {
    group->fail(rank, std::string("its thread does not start: ") + error.what(),
                std::current_exception());
  }
  return threads;
}

}  // namespace

void ThreadCommunicator::check(const MessageEnd& end) const {
  check_message(end, size());
  group_->check();
}

std::unique_ptr<Message> ThreadCommunicator::send(Index to, Index tag,
                                                  std::span<const std::byte> bytes) {
  const MessageEnd end{MessageEnd::Kind::send, rank_, to, tag, bytes.size()};
  check(end);
  return std::make_unique<ThreadMessage>(group_, end,
                                         group_->mailbox(to).send({rank_, tag}, bytes));
}

std::unique_ptr<Message> ThreadCommunicator::receive(Index from, Index tag,
                                                     std::span<std::byte> bytes) {
  const MessageEnd end{MessageEnd::Kind::receive, rank_, from, tag, bytes.size()};
  check(end);
  return std::make_unique<ThreadMessage>(group_, end,
                                         group_->mailbox(rank_).receive({from, tag}, bytes));
}

std::unique_ptr<Communicator> self_communicator() {
  return std::make_unique<ThreadCommunicator>(std::make_shared<RankGroup>(1), 0, "self",
                                              std::chrono::milliseconds(0));
}

void run_ranks(Index ranks, const RankMain& rank_main, const ThreadRanksOptions& options) {
  detail::check(ranks >= 1 && ranks <= most_ranks, "run_ranks: ", ranks,
                " ranks given, expected 1 to ", most_ranks);
  const auto group = std::make_shared<RankGroup>(ranks);
  {
    const auto threads = start_ranks(group, rank_main, options.timeout);
    const bool all = std::ssize(threads) == ranks - 1;
    if (all) run_rank(group, 0, rank_main, options.timeout);
  }
  group->rethrow();
}

}  // namespace rapt::distributed
