// Ranks that are threads: every case of a communicator, and what happens when one fails.

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include "distributed/attention_cases.h"

namespace rapt::test {
namespace {

using namespace distributed;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr Index rank_counts[] = {1, 2, 3, 4, 5, 8};

class ThreadRanksCase : public testing::TestWithParam<CommunicatorCase> {};

TEST_P(ThreadRanksCase, HoldsForAnyNumberOfRanks) {
  for (const Index ranks : rank_counts)
    EXPECT_NO_THROW(run_ranks(ranks, GetParam().run, {.timeout = std::chrono::seconds(60)}))
        << ranks << " ranks";
}

TEST_P(ThreadRanksCase, HoldsForOneRankAlone) {
  const auto self = self_communicator();
  EXPECT_NO_THROW(GetParam().run(*self));
}

/// What the case does inside a group: ranks 1 to 3 of five, in reverse order.
TEST_P(ThreadRanksCase, HoldsInAGroup) {
  run_ranks(5, [](Communicator& communicator) {
    const Index rank = communicator.rank();
    const auto group = split(communicator, rank >= 1 && rank <= 3 ? 1 : 0, -rank);
    GetParam().run(*group);
  });
}

std::string communicator_case_name(const testing::TestParamInfo<CommunicatorCase>& info) {
  return info.param.name;
}

std::vector<CommunicatorCase> cases_in_groups() {
  auto cases = all_cases();  // a group's messages say which ranks of the run they concern
  std::erase_if(cases, [](const auto& c) { return c.run == descriptions_name_the_message; });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Communicator, ThreadRanksCase, testing::ValuesIn(cases_in_groups()),
                         communicator_case_name);

/// The text of what run_ranks throws.
std::string failure_of(Index ranks, const std::function<void(Communicator&)>& rank_main,
                       milliseconds timeout = std::chrono::minutes(1)) {
  try {
    run_ranks(ranks, rank_main, {.timeout = timeout});
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

TEST(ThreadRanks, DescribeTheirMessages) { run_ranks(3, descriptions_name_the_message); }

TEST(ThreadRanks, AreNumberedAndKnowTheirBackend) {
  std::array<std::atomic<int>, 5> runs = {};
  run_ranks(5, [&](Communicator& communicator) {
    EXPECT_EQ(communicator.size(), 5);
    EXPECT_EQ(communicator.backend(), "threads");
    EXPECT_EQ(communicator.timeout(), std::chrono::minutes(5));
    ++runs[static_cast<std::size_t>(communicator.rank())];
  });
  for (const auto& count : runs) EXPECT_EQ(count, 1);
  EXPECT_EQ(self_communicator()->backend(), "self");
}

TEST(ThreadRanks, AreRefusedInImpossibleNumbers) {
  for (const Index ranks : {-1, 0, 4097})
    EXPECT_EQ(error_of([&] { run_ranks(ranks, [](Communicator&) {}); }),
              "run_ranks: " + std::to_string(ranks) + " ranks given, expected 1 to 4096");
}

/// A rank that fails wakes those that wait for it, and those that wait for them.
TEST(ThreadRanks, AllEndWhenOneFails) {
  const auto start = Clock::now();
  std::array<std::string, 4> heard;
  const std::string failure = failure_of(4, [&](Communicator& communicator) {
    if (communicator.rank() == 2) {
      std::this_thread::sleep_for(milliseconds(50));
      throw std::out_of_range("the disk is full");
    }
    try {
      barrier(communicator);
    } catch (const std::runtime_error& error) {
      heard[static_cast<std::size_t>(communicator.rank())] = error.what();
      throw;
    }
  });
  EXPECT_EQ(failure, "the disk is full");
  for (const std::size_t rank : {0, 1, 3})
    EXPECT_EQ(heard[rank], "rank 2 failed: the disk is full");
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
  EXPECT_THROW(run_ranks(2, [](Communicator&) { throw 7; }), int);
}

TEST(ThreadRanks, AllEndWhenOneAborts) {
  EXPECT_EQ(failure_of(3,
                       [](Communicator& communicator) {
                         if (communicator.rank() == 1) return communicator.abort("no memory");
                         barrier(communicator);
                       }),
            "rank 1 failed: no memory");
}

TEST(ThreadRanks, GiveUpAfterTheTimeout) {
  const auto start = Clock::now();
  const std::string failure = failure_of(
      2,
      [](Communicator& communicator) {
        ByteVector bytes = empty_bytes(16);
        if (communicator.rank() == 0) wait(communicator, *communicator.receive(1, 4, bytes));
        while (communicator.rank() == 1 && !communicator.receive(0, 9, {})->done())
          std::this_thread::sleep_for(milliseconds(1));
      },
      milliseconds(150));
  EXPECT_NE(failure.find("destroyed before it was done"), std::string::npos) << failure;
  const std::string late = failure_of(
      2,
      [](Communicator& communicator) {
        ByteVector bytes = empty_bytes(16);
        if (communicator.rank() == 0) wait(communicator, *communicator.receive(1, 4, bytes));
        if (communicator.rank() == 1) std::this_thread::sleep_for(milliseconds(700));
      },
      milliseconds(150));
  EXPECT_EQ(late,
            "rank 0 receiving 16 bytes from rank 1 (tag 4): not done after 0.15 s. The other rank "
            "has stopped, still computes, or makes other calls: look at what it does, or raise the "
            "timeout.");
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
}

TEST(ThreadRanks, NameTheCollectiveThatTheyWaitIn) {
  const std::string failure = failure_of(3, [](Communicator& communicator) {
    if (communicator.rank() != 2) barrier(communicator);
  });
  EXPECT_NE(failure.find("rank 2 (barrier): rank 2 has returned without its side"),
            std::string::npos)
      << failure;
}

TEST(ThreadRanks, NoticeARankThatHasReturned) {
  EXPECT_EQ(failure_of(2,
                       [](Communicator& communicator) {
                         if (communicator.rank() == 1) return;
                         wait(communicator, *communicator.send(1, 4, {}));
                       }),
            "rank 0 sending 0 bytes to rank 1 (tag 4): rank 1 has returned without its side of "
            "this message");
}

TEST(ThreadRanks, EndTheRunIfAMessageIsDestroyedTooEarly) {
  const ByteVector bytes = empty_bytes(3);
  EXPECT_EQ(failure_of(2,
                       [&](Communicator& communicator) {
                         if (communicator.rank() == 1) communicator.send(0, 1, bytes);
                         barrier(communicator);
                       }),
            "rank 1 failed: rank 1 sending 3 bytes to rank 0 (tag 1): the message was destroyed "
            "before it was done; wait for it first");
}

/// What a rank throws counts, not the messages that its exception destroys.
TEST(ThreadRanks, ForwardAnExceptionPastUnfinishedMessages) {
  const ByteVector bytes = empty_bytes(3);
  EXPECT_EQ(failure_of(2,
                       [&](Communicator& communicator) {
                         const auto message = communicator.send(1 - communicator.rank(), 1, bytes);
                         if (communicator.rank() == 1) throw std::runtime_error("first");
                         wait(communicator, *message);
                       }),
            "first");
}

TEST(ThreadRanks, RefuseMessagesOfDifferentSizes) {
  const std::string failure = failure_of(2, [](Communicator& communicator) {
    ByteVector bytes = empty_bytes(10 + communicator.rank());
    const auto message = communicator.rank() == 0 ? communicator.receive(1, 2, bytes)
                                                  : communicator.send(0, 2, bytes);
    wait(communicator, *message);
  });
  EXPECT_EQ(failure, "rank 1 sends 11 bytes (tag 2) where the receiver expects 10");
}

TEST(ThreadRanks, AloneKnowWhatNeverArrives) {
  const auto self = self_communicator();
  const auto message = self->receive(0, 1, {});
  EXPECT_THROW(wait(*self, *message), std::runtime_error);
  wait(*self, *self->send(0, 1, {}));
}

/// Done when it has been asked often enough; of its own it has nothing but that.
class Countdown final : public Message {
 public:
  explicit Countdown(int calls) : calls_(calls) {}
  bool done() override { return --calls_ <= 0; }

 private:
  int calls_;
};

TEST(ThreadRanks, WaitForMessagesOfAnyTransport) {
  run_ranks(1, [](Communicator& communicator) {
    Countdown soon(100'000);
    wait(communicator, soon);
  });
  const auto self = self_communicator();
  Countdown late(2);
  try {
    wait(*self, late);
    ADD_FAILURE() << "waited longer than the timeout";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(std::string(error.what()).rfind("a message: not done after 0 s", 0), 0U);
  }
}

/// Many more ranks than CPUs, thousands of messages that wait for each other.
TEST(ThreadRanks, SleepWhereThereAreFewCpus) {
  run_ranks(32, [](Communicator& communicator) {
    const Index rank = communicator.rank(), ranks = communicator.size();
    Index token = -1;
    for (Index round = 0; round < 20; ++round) {
      const auto out = std::as_bytes(std::span(&token, 1));
      const auto in = std::as_writable_bytes(std::span(&token, 1));
      const Index before = (rank + ranks - 1) % ranks, after = (rank + 1) % ranks;
      if (rank > 0) wait(communicator, *communicator.receive(before, 0, in));
      if (rank == 0) token = round;
      wait(communicator, *communicator.send(after, 0, out));
      if (rank == 0) wait(communicator, *communicator.receive(before, 0, in));
      EXPECT_EQ(token, round);
    }
    for (int repeat = 0; repeat < 50; ++repeat) barrier(communicator);
  });
}

/// Everybody fails at some random moment while others copy, sleep and unwind.
TEST(ThreadRanks, FailAtAnyMoment) {
  for (int repeat = 0; repeat < 200; ++repeat) {
    const std::string failure = failure_of(4, [&](Communicator& communicator) {
      std::mt19937 random(static_cast<unsigned>(repeat * 4 + communicator.rank()));
      std::vector<float> numbers(5000, 1);
      for (unsigned calls = random() % 6; calls > 0; --calls)
        all_reduce_sum(communicator, std::span<float>(numbers));
      throw std::runtime_error("on purpose");
    });
    EXPECT_EQ(failure, "on purpose");
  }
}

}  // namespace
}  // namespace rapt::test
