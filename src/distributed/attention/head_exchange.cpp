#include "distributed/attention/head_exchange.h"

#include <cstring>

namespace rapt::detail {
namespace {

template <class View>
Index row_bytes(const View& operand) {
  return operand.dim() * static_cast<Index>(size_of(operand.type()));
}

/// Bytes of one token in one head of all operands.
template <class Views>
Index token_bytes(const Views& operands) {
  Index bytes = 0;
  for (const auto& operand : operands) bytes += row_bytes(operand);
  return bytes;
}

/// Calls move(rows, bytes) for some rows of one head of every operand, in one order.
template <class Views, class Move>
void for_each_rows(const Views& operands, Index head, const std::vector<RowRun>& runs,
                   const Move& move) {
  for (const auto& operand : operands) {
    const Index bytes = row_bytes(operand), item = head / operand.heads();
    const bool joined = operand.stride(2) == operand.dim();
    for (const RowRun& run : runs) {
      const Index step = joined ? run.count : 1;
      for (Index row = 0; row < run.count; row += step)
        move(operand.row(item, head % operand.heads(), run.first + row), to_size(bytes * step));
    }
  }
}

template <class Views>
void pack(const Views& operands, Index head, const std::vector<RowRun>& runs, std::byte* to) {
  for_each_rows(operands, head, runs, [&](const void* rows, std::size_t bytes) {
    std::memcpy(to, rows, bytes);
    to += bytes;
  });
}

void unpack(const std::byte* from, Index head, const std::vector<RowRun>& runs,
            const std::vector<AnyMutableView>& to) {
  for_each_rows(to, head, runs, [&](void* rows, std::size_t bytes) {
    std::memcpy(rows, from, bytes);
    from += bytes;
  });
}

}  // namespace

HeadRange HeadPlacement::heads_of(Index rank) const {
  const Index first = rank * batch_heads_ / ranks_;
  return {first, (rank + 1) * batch_heads_ / ranks_ - first};
}

HeadExchange::HeadExchange(Communicator& communicator, const distributed::Placement& tokens,
                           const HeadPlacement& heads, Index tag)
    : communicator_(communicator),
      tokens_(tokens),
      heads_(heads),
      tag_(tag),
      sent_(communicator.size()),
      received_(communicator.size()),
      messages_(communicator) {}

std::vector<RowRun> HeadExchange::runs_among_all(Index rank) const {
  std::vector<RowRun> runs;
  for (const Index number : tokens_.tiles(rank)) {
    const Index first = number * tile;
    const Index count = std::min(tile, tokens_.tokens() - first);
    if (!runs.empty() && runs.back().first + runs.back().count == first)
      runs.back().count += count;
    else
      runs.push_back({first, count});
  }
  return runs;
}

std::vector<RowRun> HeadExchange::own_run(Index rank) const { return {{0, tokens_.tokens(rank)}}; }

void HeadExchange::send(Index rank, std::size_t bytes) {
  messages_.send(rank, tag_, {sent_[rank].data(), bytes});
}

void HeadExchange::receive(Index rank, std::size_t bytes) {
  std::byte* to = at_least(received_[rank], static_cast<Index>(bytes));
  messages_.receive(rank, tag_, {to, bytes});
}

void HeadExchange::start_to_heads(const std::vector<AnyView>& operands, Index round) {
  round_ = round;
  const Index bytes = token_bytes(operands), rank = communicator_.rank();
  for (Index other = 0; other < communicator_.size(); ++other) {
    if (heads_.has(rank, round)) receive(other, to_size(bytes * tokens_.tokens(other)));
    if (!heads_.has(other, round)) continue;
    const Index size = bytes * tokens_.tokens(rank);
    pack(operands, heads_.heads_of(other).first + round, own_run(rank),
         at_least(sent_[other], size));
    send(other, to_size(size));
  }
}

void HeadExchange::finish_to_heads(std::vector<Tensor>& whole) {
  messages_.wait();
  if (!heads_.has(communicator_.rank(), round_)) return;
  const std::vector<AnyMutableView> views(whole.begin(), whole.end());
  for (Index other = 0; other < communicator_.size(); ++other)
    unpack(received_[other].data(), 0, runs_among_all(other), views);
}

void HeadExchange::start_to_tokens(const std::vector<AnyView>& results, Index round) {
  round_ = round;
  const Index bytes = token_bytes(results), rank = communicator_.rank();
  for (Index other = 0; other < communicator_.size(); ++other) {
    if (heads_.has(other, round)) receive(other, to_size(bytes * tokens_.tokens(rank)));
    if (!heads_.has(rank, round)) continue;
    const Index size = bytes * tokens_.tokens(other);
    pack(results, 0, runs_among_all(other), at_least(sent_[other], size));
    send(other, to_size(size));
  }
}

void HeadExchange::finish_to_tokens(const std::vector<AnyMutableView>& own) {
  if (round_ < 0) return;
  messages_.wait();
  const Index rank = communicator_.rank();
  for (Index other = 0; other < communicator_.size(); ++other) {
    if (heads_.has(other, round_))
      unpack(received_[other].data(), heads_.heads_of(other).first + round_, own_run(rank), own);
  }
  round_ = -1;
}

}  // namespace rapt::detail
