#include "distributed/attention/head_exchange.h"

#include <cstring>

namespace rapt::detail {
namespace {

Index row_bytes(const AnyView& operand) {
  return operand.dim() * static_cast<Index>(size_of(operand.type()));
}

/// Bytes of one token in all operands.
Index token_bytes(const std::vector<AnyView>& operands) {
  Index bytes = 0;
  for (const AnyView& operand : operands) bytes += row_bytes(operand);
  return bytes;
}

/// Calls move(row, row bytes) for some rows of some heads of every operand, in one order.
template <class Views, class Move>
void for_each_row(const Views& operands, const HeadRange& heads, const std::vector<RowRun>& runs,
                  const Move& move) {
  for (const auto& operand : operands) {
    for (Index head = heads.first; head < heads.first + heads.count; ++head) {
      for (const RowRun& run : runs) {
        for (Index row = run.first; row < run.first + run.count; ++row)
          move(operand.row(head / operand.heads(), head % operand.heads(), row),
               to_size(row_bytes(operand)));
      }
    }
  }
}

void pack(const std::vector<AnyView>& operands, const HeadRange& heads,
          const std::vector<RowRun>& runs, std::byte* to) {
  for_each_row(operands, heads, runs, [&](const void* row, std::size_t bytes) {
    std::memcpy(to, row, bytes);
    to += bytes;
  });
}

void unpack(const std::byte* from, const HeadRange& heads, const std::vector<RowRun>& runs,
            std::vector<Tensor>& to) {
  std::vector<AnyMutableView> views(to.begin(), to.end());
  for_each_row(views, heads, runs, [&](void* row, std::size_t bytes) {
    std::memcpy(row, from, bytes);
    from += bytes;
  });
}

std::vector<Tensor> tensors_like(const std::vector<AnyView>& operands, Index batch, Index heads,
                                 Index tokens) {
  std::vector<Tensor> tensors;
  for (const AnyView& operand : operands)
    tensors.push_back(Tensor::uninitialized({batch, heads, tokens, operand.dim()}, operand.type()));
  return tensors;
}

}  // namespace

HeadExchange::HeadExchange(Communicator& communicator, const distributed::Placement& placement,
                           Index batch_heads)
    : communicator_(communicator), placement_(placement), batch_heads_(batch_heads) {}

HeadRange HeadExchange::heads_of(Index rank) const {
  const Index ranks = communicator_.size();
  const Index first = rank * batch_heads_ / ranks;
  return {first, (rank + 1) * batch_heads_ / ranks - first};
}

std::vector<RowRun> HeadExchange::runs_among_all(Index rank) const {
  std::vector<RowRun> runs;
  for (const Index number : placement_.tiles(rank)) {
    const Index first = number * tile;
    const Index count = std::min(tile, placement_.tokens() - first);
    if (!runs.empty() && runs.back().first + runs.back().count == first)
      runs.back().count += count;
    else
      runs.push_back({first, count});
  }
  return runs;
}

std::vector<RowRun> HeadExchange::own_run(Index rank) const {
  return {{0, placement_.tokens(rank)}};
}

HeadExchange::Buffers HeadExchange::exchange(const Buffers& to_send,
                                             const IndexedVector<Index>& received_bytes) const {
  Buffers received;
  std::vector<std::span<const std::byte>> from;
  std::vector<std::span<std::byte>> to;
  for (const Buffer<std::byte>& buffer : to_send)
    from.emplace_back(buffer.data(), to_size(buffer.size()));
  for (const Index bytes : received_bytes) received.push_back(Buffer<std::byte>(bytes));
  for (Buffer<std::byte>& buffer : received) to.emplace_back(buffer.data(), to_size(buffer.size()));
  distributed::all_to_all(communicator_, from, to);
  return received;
}

std::vector<Tensor> HeadExchange::to_heads(const std::vector<AnyView>& operands) const {
  const Index bytes = token_bytes(operands), rank = communicator_.rank();
  Buffers to_send;
  IndexedVector<Index> received_bytes;
  for (Index other = 0; other < communicator_.size(); ++other) {
    const HeadRange heads = heads_of(other);
    to_send.push_back(Buffer<std::byte>(bytes * heads.count * placement_.tokens(rank)));
    pack(operands, heads, own_run(rank), to_send.back().data());
    received_bytes.push_back(bytes * own_heads().count * placement_.tokens(other));
  }
  const Buffers received = exchange(to_send, received_bytes);
  const Index count = own_heads().count;
  std::vector<Tensor> all = tensors_like(operands, 1, count, placement_.tokens());
  for (Index other = 0; other < communicator_.size(); ++other)
    unpack(received[other].data(), {0, count}, runs_among_all(other), all);
  return all;
}

std::vector<Tensor> HeadExchange::to_tokens(const std::vector<AnyView>& operands, Index batch,
                                            Index heads) const {
  const Index bytes = token_bytes(operands), rank = communicator_.rank();
  Buffers to_send;
  IndexedVector<Index> received_bytes;
  for (Index other = 0; other < communicator_.size(); ++other) {
    to_send.push_back(Buffer<std::byte>(bytes * own_heads().count * placement_.tokens(other)));
    pack(operands, {0, own_heads().count}, runs_among_all(other), to_send.back().data());
    received_bytes.push_back(bytes * heads_of(other).count * placement_.tokens(rank));
  }
  const Buffers received = exchange(to_send, received_bytes);
  std::vector<Tensor> own = tensors_like(operands, batch, heads, placement_.tokens(rank));
  for (Index other = 0; other < communicator_.size(); ++other)
    unpack(received[other].data(), heads_of(other), own_run(rank), own);
  return own;
}

}  // namespace rapt::detail
