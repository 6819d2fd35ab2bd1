#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "rapt/distributed/communicator.h"
#include "support/refused.h"

// What every Communicator does, as functions that all ranks call. Threads run them in
// thread_ranks_test.cpp, processes in mpi/mpi_tests.cpp; a transport of your own can, too. They use
// public headers only.
namespace rapt::test {

using distributed::Communicator;
using distributed::Message;

using ByteVector = std::vector<std::byte>;
using MessageVector = std::vector<std::unique_ptr<Message>>;

/// Bytes that only one message has.
inline ByteVector bytes_of(Index size, Index from, Index to, Index tag) {
  std::mt19937_64 random(static_cast<std::uint64_t>(from * 1000003 + to * 1009 + tag));
  ByteVector bytes(static_cast<std::size_t>(size));
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t eight = random();
    std::memcpy(&bytes[at], &eight, std::min(sizeof(eight), bytes.size() - at));
  }
  return bytes;
}

inline ByteVector empty_bytes(Index size) { return ByteVector(static_cast<std::size_t>(size)); }

inline void wait_all(Communicator& communicator, const MessageVector& messages) {
  for (const auto& message : messages) wait(communicator, *message);
}

/// Every rank sends `size` bytes to every rank, itself included, all at once.
inline void expect_all_pairs(Communicator& communicator, Index size, Index tag) {
  const Index rank = communicator.rank(), ranks = communicator.size();
  std::vector<ByteVector> sent, received;
  MessageVector messages;
  for (Index other = 0; other < ranks; ++other) {
    sent.push_back(bytes_of(size, rank, other, tag));
    received.push_back(empty_bytes(size));
  }
  for (Index other = 0; other < ranks; ++other)
    messages.push_back(communicator.send(other, tag, sent[static_cast<std::size_t>(other)]));
  for (Index other = 0; other < ranks; ++other)
    messages.push_back(communicator.receive(other, tag, received[static_cast<std::size_t>(other)]));
  wait_all(communicator, messages);
  for (Index other = 0; other < ranks; ++other)
    EXPECT_EQ(received[static_cast<std::size_t>(other)], bytes_of(size, other, rank, tag))
        << size << " bytes from rank " << other << " to rank " << rank;
}

/// Messages with one tag keep their order, whatever their sizes, and tags keep them apart: the
/// receiver asks for the last tag first.
inline void messages_keep_their_order(Communicator& communicator) {
  constexpr Index tags[] = {0, 1, 77, Communicator::tags - 1};
  constexpr Index count = 12;
  const Index rank = communicator.rank(), ranks = communicator.size();
  const Index to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
  const auto size = [](Index i) { return (i * 37) % 11 * 100; };
  std::vector<ByteVector> sent, received;
  MessageVector messages;
  for (Index i = 0; i < count; ++i)
    for (const Index tag : tags) sent.push_back(bytes_of(size(i), rank, to, tag * count + i));
  for (std::size_t next = 0; next < sent.size(); ++next)
    messages.push_back(communicator.send(to, tags[next % std::size(tags)], sent[next]));
  received.reserve(sent.size());
  for (std::size_t last = std::size(tags); last-- > 0;)
    for (Index i = 0; i < count; ++i) {
      received.push_back(empty_bytes(size(i)));
      messages.push_back(communicator.receive(from, tags[last], received.back()));
    }
  wait_all(communicator, messages);
  std::size_t next = 0;
  for (std::size_t last = std::size(tags); last-- > 0;)
    for (Index i = 0; i < count; ++i, ++next)
      EXPECT_EQ(received[next], bytes_of(size(i), from, rank, tags[last] * count + i))
          << "message " << i << " with tag " << tags[last];
}

inline void all_pairs_exchange_any_size(Communicator& communicator) {
  for (const Index size : {0, 1, 999, 1000, 1001, 70000}) expect_all_pairs(communicator, size, 3);
}

/// Both directions at once, each longer than any buffer of a transport.
inline void long_messages_cross(Communicator& communicator) {
  expect_all_pairs(communicator, 1'000'001, 5);
}

/// No rank waits on the way: a rank that asks done() in a loop gets its messages as well.
inline void done_completes_messages_without_wait(Communicator& communicator) {
  const Index rank = communicator.rank(), ranks = communicator.size();
  const Index to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
  const ByteVector sent = bytes_of(200'000, rank, to, 9);
  ByteVector received = empty_bytes(200'000);
  const auto in = communicator.receive(from, 9, received);
  const auto out = communicator.send(to, 9, sent);
  while (!in->done() || !out->done()) std::this_thread::yield();
  EXPECT_TRUE(in->done() && out->done());
  EXPECT_EQ(received, bytes_of(200'000, from, rank, 9));
}

inline void descriptions_name_the_message(Communicator& communicator) {
  const Index rank = communicator.rank();
  ByteVector sent = empty_bytes(8), received = empty_bytes(8);
  const auto in = communicator.receive(rank, 4, received);
  const auto out = communicator.send(rank, 4, sent);
  const std::string me = "rank " + std::to_string(rank);
  EXPECT_EQ(in->description(), me + " receiving 8 bytes from " + me + " (tag 4)");
  EXPECT_EQ(out->description(), me + " sending 8 bytes to " + me + " (tag 4)");
  wait(communicator, *in);
  wait(communicator, *out);
}

inline void ranks_and_tags_that_do_not_exist_are_refused(Communicator& communicator) {
  const std::string last = std::to_string(communicator.size() - 1);
  ByteVector bytes = empty_bytes(1);
  EXPECT_EQ(error_of([&] { communicator.send(-1, 0, bytes); }),
            "send: rank -1 given, expected 0 to " + last);
  EXPECT_EQ(
      error_of([&] { communicator.receive(communicator.size(), 0, bytes); }),
      "receive: rank " + std::to_string(communicator.size()) + " given, expected 0 to " + last);
  EXPECT_EQ(error_of([&] { communicator.send(0, -1, bytes); }),
            "send: tag -1 given, expected 0 to 32767");
  EXPECT_EQ(error_of([&] { communicator.receive(0, Communicator::transport_tags, bytes); }),
            "receive: tag 524288 given, expected 0 to 32767");
  EXPECT_EQ(
      error_of([&] { broadcast(communicator, communicator.size(), bytes); }),
      "broadcast: root " + std::to_string(communicator.size()) + " given, expected 0 to " + last);
  EXPECT_EQ(error_of([&] { all_gather(communicator, bytes, {}); }),
            "all_gather: room for 0 bytes given, expected 1 from each of " +
                std::to_string(communicator.size()) + " ranks");
  EXPECT_EQ(error_of([&] { all_to_all(communicator, {}, {}); }),
            "all_to_all: 0 spans to send and 0 to receive given, expected " +
                std::to_string(communicator.size()) + " of each");
}

struct CommunicatorCase {
  const char* name;
  void (*run)(Communicator&);
};

inline constexpr CommunicatorCase message_cases[] = {
    {"MessagesKeepTheirOrder", messages_keep_their_order},
    {"AllPairsExchangeAnySize", all_pairs_exchange_any_size},
    {"LongMessagesCross", long_messages_cross},
    {"DoneCompletesMessagesWithoutWait", done_completes_messages_without_wait},
    {"DescriptionsNameTheMessage", descriptions_name_the_message},
    {"RanksAndTagsThatDoNotExistAreRefused", ranks_and_tags_that_do_not_exist_are_refused},
};

}  // namespace rapt::test
