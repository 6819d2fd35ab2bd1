#pragma once

#include "base/buffer.h"
#include "distributed/attention/message_set.h"
#include "distributed/exchange/exchange_parts.h"

namespace rapt::detail {

/// Rows that travel between this rank and another: neighbours in the operand.
struct RowRun {
  Index first, count;
};

/// Where the tiles of a transfer are among the rows of this rank, by peer.
std::vector<std::vector<RowRun>> own_rows(const std::vector<PeerTiles>& peers,
                                          std::span<const Index> own_tiles, Index tokens);

/// Grows only: messages of a call have about the same size.
template <class T>
T* at_least(Buffer<T>& buffer, Index size) {
  if (buffer.size() < size) buffer = Buffer<T>(size);
  return buffer.data();
}

/// Operands of a transfer's tiles, a range of heads at a time: one message to each peer has the
/// rows of all operands. An operand has as many heads as there are key heads, or a multiple.
class TileMessages {
 public:
  TileMessages(Communicator& communicator, const TileTransfer& transfer,
               std::vector<AnyView> operands, std::span<const Index> own_tiles, Index tokens,
               Index kv_heads, Index tag);

  /// Starts sending and receiving; what the last start received is gone.
  void start(const HeadRange& heads);
  /// Waits until everything has arrived.
  void finish() { messages_.wait(); }
  /// Lets messages move on.
  void progress() { messages_.progress(); }

  /// By source: [1, heads, tokens, dim] of an operand.
  const AnyView* received(Index operand) const { return views_[operand].data(); }

 private:
  Index head_factor(Index operand) const { return operands_[operand].heads() / kv_heads_; }
  Index bytes_of(Index tokens, const HeadRange& heads) const;
  void pack(const std::vector<RowRun>& runs, const HeadRange& heads, std::byte* to) const;
  void view_received(Index source, const HeadRange& heads);

  const TileTransfer& transfer_;
  IndexedVector<AnyView> operands_;
  std::vector<std::vector<RowRun>> rows_;  // to be sent, by peer
  Index kv_heads_;
  Index tag_;
  IndexedVector<Buffer<std::byte>> in_, out_;    // by peer
  IndexedVector<IndexedVector<AnyView>> views_;  // by operand and source
  MessageSet messages_;                          // last: gone before their memory
};

}  // namespace rapt::detail
