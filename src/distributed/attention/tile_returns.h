#pragma once

#include "distributed/attention/tile_messages.h"

namespace rapt::detail {

/// The way back of a transfer: results that this rank computed for tiles of others go home, and
/// those that others computed for its own tiles arrive. f32, a range of heads at a time.
class TileReturns {
 public:
  /// A result has as many heads as there are key heads, or a multiple.
  struct Result {
    Index head_factor, dim;
  };
  TileReturns(Communicator& communicator, const TileTransfer& transfer, std::vector<Result> results,
              std::span<const Index> own_tiles, Index tokens, Index tag);

  /// Makes room for results of these heads. Those of the last range must have been taken.
  void begin(const HeadRange& heads);
  /// By source of the transfer: where results [1, heads, tokens, dim] are to be written.
  const AnyMutableView* to_send(Index result) const { return views_[result].data(); }
  /// Sends them, and starts to receive.
  void start();
  /// Waits, then calls take(result, head, own row, numbers) for every row that came back, peers in
  /// ascending order. `head` counts from the first of the range.
  template <class Take>
  void finish(const Take& take);
  void progress() { messages_.progress(); }
  bool pending() const { return !messages_.empty(); }
  const HeadRange& heads() const { return heads_; }

 private:
  Index numbers_of(Index tokens) const;

  const TileTransfer& transfer_;
  IndexedVector<Result> results_;
  std::vector<std::vector<RowRun>> rows_;  // that come back, by peer
  Index tag_;
  HeadRange heads_;
  IndexedVector<Buffer<float>> sent_, returned_;
  IndexedVector<IndexedVector<AnyMutableView>> views_;  // by result and source
  MessageSet messages_;                                 // last: gone before their memory
};

template <class Take>
void TileReturns::finish(const Take& take) {
  if (!pending()) return;
  messages_.wait();
  for (Index peer = 0; peer < std::ssize(transfer_.out); ++peer) {
    const float* from = returned_[peer].data();
    for (Index result = 0; result < std::ssize(results_); ++result) {
      const Index dim = results_[result].dim;
      for (Index head = 0; head < heads_.count * results_[result].head_factor; ++head) {
        for (const RowRun& run : element(rows_, peer)) {
          for (Index row = run.first; row < run.first + run.count; ++row, from += dim)
            take(result, head, row, from);
        }
      }
    }
  }
}

}  // namespace rapt::detail
