#include <algorithm>
#include <cstring>
#include <vector>

#include "base/indexed_vector.h"
#include "distributed/communicator/tags.h"
#include "rapt/distributed/communicator.h"

namespace rapt::distributed {
namespace {

using detail::element;
using detail::IndexedVector;

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;
using Messages = std::vector<std::unique_ptr<Message>>;

/// Sums are taken in blocks of so many numbers, so that what all ranks send of them fits caches and
/// memory however long the sum is.
constexpr Index block_numbers = Index{1} << 20;
/// Up to so many bytes from all ranks together, a rank adds up everything itself: one round of
/// messages instead of two.
constexpr Index gathered_bytes = Index{32} << 10;

void wait_all(Communicator& communicator, const Messages& messages) {
  for (const auto& message : messages) wait(communicator, *message);
}

void copy(Bytes from, MutableBytes to) {
  if (!from.empty() && from.data() != to.data()) std::memmove(to.data(), from.data(), from.size());
}

void check_exchange(std::string_view call, Index ranks, std::span<const Bytes> to_send,
                    std::span<const MutableBytes> to_receive) {
  detail::check(std::ssize(to_send) == ranks && std::ssize(to_receive) == ranks, call, ": ",
                to_send.size(), " spans to send and ", to_receive.size(),
                " to receive given, expected ", ranks, " of each");
}

/// Every pair of ranks exchanges its spans, all pairs at once. Ranks begin with the next one, so
/// that no rank is everybody's first.
void exchange(Communicator& communicator, Collective collective, std::span<const Bytes> to_send,
              std::span<const MutableBytes> to_receive) {
  const Index rank = communicator.rank(), ranks = communicator.size();
  const Index tag = tag_of(collective);
  Messages messages;
  for (Index step = 1; step < ranks; ++step) {
    const Index from = (rank - step + ranks) % ranks, to = (rank + step) % ranks;
    if (const MutableBytes bytes = element(to_receive, from); !bytes.empty())
      messages.push_back(communicator.receive(from, tag, bytes));
    if (const Bytes bytes = element(to_send, to); !bytes.empty())
      messages.push_back(communicator.send(to, tag, bytes));
  }
  copy(element(to_send, rank), element(to_receive, rank));
  wait_all(communicator, messages);
}

/// Part `rank` of as many equal parts as ranks, up to one number.
template <class T>
std::span<T> slice(std::span<T> numbers, Index rank, Index ranks) {
  const Index size = std::ssize(numbers);
  const Index begin = size * rank / ranks, end = size * (rank + 1) / ranks;
  return numbers.subspan(detail::to_size(begin), detail::to_size(end - begin));
}

template <class T>
void add(std::span<T> sum, std::span<const T> terms) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += terms[i];
}

/// Numbers of all ranks, one after the other: their sum, in this order.
template <class T>
void add_up(std::span<const T> gathered, std::span<T> sum) {
  std::copy_n(gathered.begin(), sum.size(), sum.begin());
  for (auto rest = gathered.subspan(sum.size()); !rest.empty(); rest = rest.subspan(sum.size()))
    add(sum, rest.first(sum.size()));
}

/// This rank's slice of the sum, in its place.
template <class T>
void reduce_scatter(Communicator& communicator, std::span<T> numbers) {
  const Index rank = communicator.rank(), ranks = communicator.size();
  const std::span<T> mine = slice(numbers, rank, ranks);
  std::vector<T> gathered(mine.size() * detail::to_size(ranks));
  IndexedVector<Bytes> to_send(ranks);
  IndexedVector<MutableBytes> to_receive(ranks);
  for (Index other = 0; other < ranks; ++other) {
    to_send[other] = std::as_bytes(slice(numbers, other, ranks));
    to_receive[other] = std::as_writable_bytes(slice(std::span(gathered), other, ranks));
  }
  exchange(communicator, Collective::all_reduce_sum, to_send, to_receive);
  if (!mine.empty()) add_up<T>(gathered, mine);
}

/// Every rank's slice, everywhere.
template <class T>
void gather_slices(Communicator& communicator, std::span<T> numbers) {
  const Index ranks = communicator.size();
  const Bytes mine = std::as_bytes(slice(numbers, communicator.rank(), ranks));
  const IndexedVector<Bytes> to_send(ranks, mine);
  IndexedVector<MutableBytes> to_receive(ranks);
  for (Index other = 0; other < ranks; ++other)
    to_receive[other] = std::as_writable_bytes(slice(numbers, other, ranks));
  exchange(communicator, Collective::all_reduce_sum, to_send, to_receive);
}

template <class T>
void sum_gathered(Communicator& communicator, std::span<T> numbers) {
  std::vector<T> gathered(numbers.size() * detail::to_size(communicator.size()));
  all_gather(communicator, std::as_bytes(numbers), std::as_writable_bytes(std::span(gathered)));
  add_up<T>(gathered, numbers);
}

template <class T>
void sum_over_ranks(Communicator& communicator, std::span<T> numbers) {
  if (communicator.size() == 1 || numbers.empty()) return;
  if (std::ssize(numbers) * Index{sizeof(T)} * communicator.size() <= gathered_bytes)
    return sum_gathered(communicator, numbers);
  for (auto rest = numbers; !rest.empty();) {
    const auto block = rest.first(std::min(rest.size(), detail::to_size(block_numbers)));
    reduce_scatter(communicator, block);
    gather_slices(communicator, block);
    rest = rest.subspan(block.size());
  }
}

}  // namespace

void barrier(Communicator& communicator) {
  const Index rank = communicator.rank(), ranks = communicator.size();
  const Index tag = tag_of(Collective::barrier);
  // Dissemination: after round i a rank has heard, through others, of 2^(i+1) - 1 ranks before it.
  for (Index distance = 1; distance < ranks; distance *= 2) {
    Messages messages;
    messages.push_back(communicator.receive((rank - distance + ranks) % ranks, tag, {}));
    messages.push_back(communicator.send((rank + distance) % ranks, tag, {}));
    wait_all(communicator, messages);
  }
}

void broadcast(Communicator& communicator, Index root, std::span<std::byte> bytes) {
  const Index rank = communicator.rank(), ranks = communicator.size();
  const Index tag = tag_of(Collective::broadcast);
  detail::check(root >= 0 && root < ranks, "broadcast: root ", root, " given, expected 0 to ",
                ranks - 1);
  // A binomial tree over the places behind the root: 0 -> 4 -> 6 -> 7, 4 -> 5, 0 -> 2 -> 3, 0 -> 1.
  const Index place = (rank - root + ranks) % ranks;
  Index reach = 1;  // the lowest bit of the place: how many places hear of it from here
  while (reach < ranks && (place & reach) == 0) reach *= 2;
  if (place != 0)
    wait(communicator, *communicator.receive((place - reach + root) % ranks, tag, bytes));
  Messages messages;
  for (Index step = reach / 2; step > 0; step /= 2)
    if (place + step < ranks)
      messages.push_back(communicator.send((place + step + root) % ranks, tag, bytes));
  wait_all(communicator, messages);
}

void all_gather(Communicator& communicator, std::span<const std::byte> mine,
                std::span<std::byte> all) {
  const Index ranks = communicator.size();
  detail::check(std::ssize(all) == std::ssize(mine) * ranks, "all_gather: room for ", all.size(),
                " bytes given, expected ", mine.size(), " from each of ", ranks, " ranks");
  const IndexedVector<Bytes> to_send(ranks, mine);
  IndexedVector<MutableBytes> to_receive(ranks);
  for (Index rank = 0; rank < ranks; ++rank) to_receive[rank] = slice(all, rank, ranks);
  exchange(communicator, Collective::all_gather, to_send, to_receive);
}

void all_to_all(Communicator& communicator, std::span<const std::span<const std::byte>> to_send,
                std::span<const std::span<std::byte>> to_receive) {
  const Index rank = communicator.rank();
  check_exchange("all_to_all", communicator.size(), to_send, to_receive);
  detail::check(element(to_send, rank).size() == element(to_receive, rank).size(),
                "all_to_all: rank ", rank, " sends ", element(to_send, rank).size(),
                " bytes to itself and expects ", element(to_receive, rank).size());
  exchange(communicator, Collective::all_to_all, to_send, to_receive);
}

void all_reduce_sum(Communicator& communicator, std::span<float> numbers) {
  sum_over_ranks(communicator, numbers);
}

void all_reduce_sum(Communicator& communicator, std::span<double> numbers) {
  sum_over_ranks(communicator, numbers);
}

}  // namespace rapt::distributed
