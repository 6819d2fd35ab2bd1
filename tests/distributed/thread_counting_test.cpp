#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <thread>

#include "distributed/communicator_cases.h"
#include "rapt/distributed/counting.h"

namespace rapt::test {
namespace {

using namespace distributed;
using std::chrono::milliseconds;

class ThreadRanksCountedCase : public testing::TestWithParam<CommunicatorCase> {};

TEST_P(ThreadRanksCountedCase, HoldsForACommunicatorThatCounts) {
  run_ranks(3, [](Communicator& communicator) {
    CountingCommunicator counting(communicator);
    GetParam().run(counting);
  });
}

std::string case_name(const testing::TestParamInfo<CommunicatorCase>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Communicator, ThreadRanksCountedCase, testing::ValuesIn(message_cases),
                         case_name);

TEST(ThreadRanksCounted, CountWhatLeavesAndArrives) {
  run_ranks(3, [](Communicator& communicator) {
    CountingCommunicator counting(communicator);
    expect_all_pairs(counting, 1000, 1);
    EXPECT_EQ(counting.counts().messages_sent, 2) << "a message to itself does not count";
    EXPECT_EQ(counting.counts().bytes_sent, 2000);
    EXPECT_EQ(counting.counts().bytes_received, 2000);
    counting.reset();
    EXPECT_EQ(counting.counts().bytes_sent, 0);
    std::array<double, 4> numbers = {1, 2, 3, 4};
    all_reduce_sum(counting, std::span<double>(numbers));
    EXPECT_GE(counting.counts().bytes_sent, 2 * 32);
  });
}

TEST(ThreadRanksCounted, CountTheTimeInWait) {
  run_ranks(2, [](Communicator& communicator) {
    CountingCommunicator counting(communicator);
    const auto group = split(counting, 0);
    if (communicator.rank() == 0) std::this_thread::sleep_for(milliseconds(50));
    ByteVector bytes = empty_bytes(8);
    counting.reset();
    wait(*group,
         *(communicator.rank() == 0 ? group->send(1, 0, bytes) : group->receive(0, 0, bytes)));
    EXPECT_EQ(counting.counts().waited >= milliseconds(30), communicator.rank() == 1);
  });
}

/// Groups of the counted communicator and of the one that counts never get the same tags.
TEST(ThreadRanksCounted, ShareTheGroupsOfTheOther) {
  run_ranks(2, [](Communicator& communicator) {
    CountingCommunicator counting(communicator);
    const auto one = split(counting, 0), other = split(communicator, 0);
    ByteVector first = bytes_of(10, 0, 0, 0), second = bytes_of(10, 1, 1, 1);
    ByteVector got_first = empty_bytes(10), got_second = empty_bytes(10);
    const Index peer = 1 - communicator.rank();
    MessageVector messages;
    messages.push_back(one->send(peer, 3, first));
    messages.push_back(other->send(peer, 3, second));
    messages.push_back(other->receive(peer, 3, got_second));
    messages.push_back(one->receive(peer, 3, got_first));
    wait_all(communicator, messages);
    EXPECT_EQ(got_first, first);
    EXPECT_EQ(got_second, second);
  });
}

}  // namespace
}  // namespace rapt::test
