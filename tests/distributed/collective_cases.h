#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <vector>

#include "distributed/communicator_cases.h"

// Collective operations and groups, as functions that all ranks call: see communicator_cases.h.
namespace rapt::test {

using distributed::split;

/// Numbers of one rank, of very different sizes, so that another order of additions shows.
template <class T>
std::vector<T> numbers_of(Index rank, Index count) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank * 7919 + count));
  std::vector<T> numbers(static_cast<std::size_t>(count));
  for (T& number : numbers) {
    const auto bits = static_cast<std::int64_t>(random());
    number = static_cast<T>(bits) / static_cast<T>(std::int64_t{1} << (40 + bits % 16));
  }
  return numbers;
}

/// ((r0 + r1) + r2) + ...
template <class T>
std::vector<T> sum_in_rank_order(Index ranks, Index count) {
  std::vector<T> sum = numbers_of<T>(0, count);
  for (Index rank = 1; rank < ranks; ++rank) {
    const std::vector<T> terms = numbers_of<T>(rank, count);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = sum[i] + terms[i];
  }
  return sum;
}

template <class T>
void expect_sum(Communicator& communicator, Index count) {
  std::vector<T> numbers = numbers_of<T>(communicator.rank(), count);
  all_reduce_sum(communicator, std::span<T>(numbers));
  EXPECT_EQ(numbers, sum_in_rank_order<T>(communicator.size(), count)) << count << " numbers";
}

/// Few numbers go to everybody, more by slices, many by blocks of slices.
inline void sums_are_those_in_rank_order(Communicator& communicator) {
  const Index ranks = communicator.size();
  for (const Index count : {Index{0}, Index{1}, ranks - 1, ranks + 1, Index{1000}, Index{8191},
                            Index{8193}, Index{20'003}}) {
    expect_sum<float>(communicator, count);
    expect_sum<double>(communicator, count);
  }
  expect_sum<float>(communicator, (Index{1} << 20) + 5);
}

inline void broadcast_reaches_all_from_any_root(Communicator& communicator) {
  const Index rank = communicator.rank();
  for (const Index size : {0, 1, 1000, 300'000})
    for (Index root = 0; root < communicator.size(); ++root) {
      const ByteVector expected = bytes_of(size, root, 0, size);
      ByteVector bytes = rank == root ? expected : empty_bytes(size);
      broadcast(communicator, root, bytes);
      EXPECT_EQ(bytes, expected) << "from " << root << " to " << rank;
    }
}

inline void all_gather_is_in_rank_order(Communicator& communicator) {
  const Index rank = communicator.rank(), ranks = communicator.size();
  for (const Index size : {0, 1, 1001, 100'000}) {
    ByteVector all = empty_bytes(size * ranks), in_place = all, expected;
    for (Index other = 0; other < ranks; ++other) {
      const ByteVector part = bytes_of(size, other, 1, size);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    const ByteVector mine = bytes_of(size, rank, 1, size);
    all_gather(communicator, mine, all);
    EXPECT_EQ(all, expected);
    std::copy(mine.begin(), mine.end(), in_place.begin() + rank * size);
    all_gather(communicator,
               std::span(in_place).subspan(static_cast<std::size_t>(rank * size), mine.size()),
               in_place);
    EXPECT_EQ(in_place, expected);
  }
}

/// Sizes differ for every pair, and some pairs have nothing for each other.
inline void all_to_all_takes_any_sizes(Communicator& communicator) {
  const Index rank = communicator.rank(), ranks = communicator.size();
  const auto size = [](Index from, Index to) { return (from * 5 + to * 3) % 4 * 1000 + from % 2; };
  std::vector<ByteVector> sent, received;
  for (Index other = 0; other < ranks; ++other) {
    sent.push_back(bytes_of(size(rank, other), rank, other, 2));
    received.push_back(empty_bytes(size(other, rank)));
  }
  const std::vector<std::span<const std::byte>> to_send(sent.begin(), sent.end());
  const std::vector<std::span<std::byte>> to_receive(received.begin(), received.end());
  all_to_all(communicator, to_send, to_receive);
  for (Index other = 0; other < ranks; ++other)
    EXPECT_EQ(received[static_cast<std::size_t>(other)],
              bytes_of(size(other, rank), other, rank, 2));
}

/// No rank leaves before the last has come. Ranks of one machine have one steady clock.
inline void barrier_waits_for_the_last(Communicator& communicator) {
  using Nanoseconds = std::chrono::steady_clock::rep;
  const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch().count(); };
  for (Index last = 0; last < communicator.size(); ++last) {
    if (communicator.rank() == last) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const Nanoseconds came = now();
    barrier(communicator);
    const Nanoseconds left = now();
    std::vector<Nanoseconds> all(static_cast<std::size_t>(communicator.size()));
    all_gather(communicator, std::as_bytes(std::span(&came, 1)),
               std::as_writable_bytes(std::span(all)));
    EXPECT_GE(left, *std::ranges::max_element(all)) << "rank " << communicator.rank();
  }
}

/// The sum of what the ranks of a group give, as one number.
inline double group_sum(Communicator& group, double mine) {
  all_reduce_sum(group, std::span<double>(&mine, 1));
  return mine;
}

/// Rows and columns of a grid two ranks wide, as training uses them.
inline void groups_are_communicators(Communicator& communicator) {
  const Index rank = communicator.rank(), ranks = communicator.size();
  const auto row = split(communicator, rank / 2), column = split(communicator, rank % 2, -rank);
  EXPECT_EQ(row->rank(), rank % 2);
  EXPECT_EQ(row->size(), std::min<Index>(2, ranks - rank / 2 * 2));
  EXPECT_EQ(column->rank(), column->size() - 1 - rank / 2) << "keys turn the order round";
  double row_sum = 0, column_sum = 0;
  for (Index other = 0; other < ranks; ++other) {
    if (other / 2 == rank / 2) row_sum += static_cast<double>(other);
    if (other % 2 == rank % 2) column_sum += static_cast<double>(other);
  }
  EXPECT_EQ(group_sum(*row, static_cast<double>(rank)), row_sum);
  EXPECT_EQ(group_sum(*column, static_cast<double>(rank)), column_sum);
  for (const auto* group : {&row, &column}) {
    expect_all_pairs(**group, 1000, 3);
    barrier(**group);
    EXPECT_EQ((*group)->backend(), communicator.backend());
    EXPECT_EQ((*group)->timeout(), communicator.timeout());
  }
  const auto alone = split(*column, column->rank());
  EXPECT_EQ(alone->size(), 1);
  EXPECT_EQ(group_sum(*alone, 3), 3);
  EXPECT_EQ(error_of([&] { alone->send(1, 0, {}); }), "send: rank 1 given, expected 0 to 0");
}

/// Messages with the same tag between the same ranks, received in another order than they were
/// sent: each communicator gets its own, even where groups of one rank made different splits.
inline void groups_keep_messages_apart(Communicator& communicator) {
  const Index rank = communicator.rank(), ranks = communicator.size();
  const auto same = split(communicator, 0);
  if (rank > 0) split(*split(communicator, 1), 0);
  if (rank == 0) split(communicator, 2);
  const auto again = split(*same, 0);
  Communicator* const all[] = {&communicator, same.get(), again.get()};
  std::vector<ByteVector> sent, received(3, empty_bytes(100));
  MessageVector messages;
  for (Index i = 0; i < 3; ++i) sent.push_back(bytes_of(100, rank, i, 6));
  for (std::size_t i = 0; i < 3; ++i)
    messages.push_back(all[i]->send((rank + 1) % ranks, 6, sent[i]));
  for (std::size_t i = 3; i-- > 0;)
    messages.push_back(all[i]->receive((rank + ranks - 1) % ranks, 6, received[i]));
  wait_all(communicator, messages);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(received[i], bytes_of(100, (rank + ranks - 1) % ranks, static_cast<Index>(i), 6));
}

inline constexpr CommunicatorCase collective_cases[] = {
    {"SumsAreThoseInRankOrder", sums_are_those_in_rank_order},
    {"BroadcastReachesAllFromAnyRoot", broadcast_reaches_all_from_any_root},
    {"AllGatherIsInRankOrder", all_gather_is_in_rank_order},
    {"AllToAllTakesAnySizes", all_to_all_takes_any_sizes},
    {"BarrierWaitsForTheLast", barrier_waits_for_the_last},
    {"GroupsAreCommunicators", groups_are_communicators},
    {"GroupsKeepMessagesApart", groups_keep_messages_apart},
};

/// Every case, for test suites that run them all.
inline std::vector<CommunicatorCase> communicator_cases() {
  std::vector<CommunicatorCase> cases(std::begin(message_cases), std::end(message_cases));
  cases.insert(cases.end(), std::begin(collective_cases), std::end(collective_cases));
  return cases;
}

}  // namespace rapt::test
