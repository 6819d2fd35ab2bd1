// Ranks that are processes. mpirun -n 3 rapt_mpi_tests runs every case of a communicator;
// rapt_mpi_tests FAULT fails on rank 1, for tests/scripts/mpi_faults.py.

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

#include "distributed/attention_cases.h"
#include "rapt/distributed/mpi.h"

namespace rapt::test {
namespace {

using namespace distributed;

constexpr std::chrono::milliseconds patience = std::chrono::seconds(60);

/// That of all tests; messages are cut into parts of a size of their own in one of them.
Communicator* world = nullptr;

class MpiCase : public testing::TestWithParam<CommunicatorCase> {};

TEST_P(MpiCase, Holds) { GetParam().run(*world); }

TEST_P(MpiCase, HoldsInParts) {
  const auto parts = mpi_communicator({.timeout = patience, .part_bytes = 1000});
  GetParam().run(*parts);
}

TEST_P(MpiCase, HoldsInAGroup) {
  const auto group = split(*world, world->rank() % 2, -world->rank());
  if (GetParam().run != descriptions_name_the_message) GetParam().run(*group);
}

INSTANTIATE_TEST_SUITE_P(Communicator, MpiCase, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Mpi, KnowsItself) {
  EXPECT_EQ(world->backend(), "mpi");
  EXPECT_EQ(world->timeout(), patience);
  EXPECT_EQ(error_of([] { mpi_communicator({.part_bytes = 0}); }),
            "mpi: part_bytes 0 given, expected 1 to 2147483647");
}

/// A shorter message is refused where it arrives, and so is a longer one.
TEST(Mpi, RefusesMessagesOfDifferentSizes) {
  const Index rank = world->rank();
  ByteVector sent = empty_bytes(8), received = empty_bytes(16), little = empty_bytes(4);
  const auto out = world->send(rank, 2, sent);
  const auto in = world->receive(rank, 2, received);
  const std::string me = "rank " + std::to_string(rank);
  EXPECT_EQ(error_of([&] { wait(*world, *in); }),
            me + " receiving 16 bytes from " + me + " (tag 2): " + me + " sends 8 bytes");
  wait(*world, *out);
  const auto long_out = world->send(rank, 2, sent);
  const auto short_in = world->receive(rank, 2, little);
  EXPECT_THROW(wait(*world, *short_in), std::runtime_error);
  wait(*world, *long_out);
}

/// What rank 1 does in a job that must end.
const std::map<std::string, void (*)(Communicator&)> faults = {
    {"throw", [](Communicator&) { throw std::runtime_error("the disk is full"); }},
    {"abort", [](Communicator& communicator) { communicator.abort("no memory"); }},
    {"kill", [](Communicator&) { std::raise(SIGKILL); }},
    {"exit", [](Communicator&) { std::_Exit(0); }},
    {"hang", [](Communicator&) { std::this_thread::sleep_for(std::chrono::minutes(1)); }},
    {"unfinished",
     [](Communicator& communicator) {
       static const ByteVector bytes = empty_bytes(10'000'000);
       communicator.send(0, 1, bytes);
     }},
};

/// All other ranks wait for it.
void run_with_fault(Communicator& communicator, void (*fault)(Communicator&)) {
  barrier(communicator);
  if (communicator.rank() == 1) fault(communicator);
  barrier(communicator);
  std::puts("not reached");
}

int run_tests() {
  int failed = 1;
  run_mpi_rank(
      [&](Communicator& communicator) {
        world = &communicator;
        // One list of tests is enough; failures are printed by all.
        if (communicator.rank() > 0) GTEST_FLAG_SET(brief, true);
        failed = RUN_ALL_TESTS();
      },
      {.timeout = patience});
  return failed;
}

}  // namespace
}  // namespace rapt::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc == 1) return rapt::test::run_tests();
  const auto fault = rapt::test::faults.at(argv[1]);
  rapt::distributed::run_mpi_rank(
      [&](rapt::distributed::Communicator& communicator) {
        rapt::test::run_with_fault(communicator, fault);
      },
      {.timeout = std::chrono::seconds(2)});
}
