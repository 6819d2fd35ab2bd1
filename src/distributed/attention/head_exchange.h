#pragma once

#include <vector>

#include "base/buffer.h"
#include "distributed/attention/rank_call.h"

namespace rapt::detail {

/// Which rank computes which (batch item, head), counted as item * heads + head, where whole heads
/// travel instead of tokens: for patterns whose keys are known only once all tokens are seen.
class HeadPlacement {
 public:
  HeadPlacement(Index ranks, Index batch_heads) : ranks_(ranks), batch_heads_(batch_heads) {}

  HeadRange heads_of(Index rank) const;
  /// Every rank computes one of its heads in each round, or none in the last.
  Index rounds() const { return divide_up(batch_heads_, ranks_); }
  bool has(Index rank, Index round) const { return round < heads_of(rank).count; }

 private:
  Index ranks_, batch_heads_;
};

/// Moves the rows of one head for each rank, there and back. One message to each rank has the rows
/// of all operands.
class HeadExchange {
 public:
  HeadExchange(Communicator& communicator, const distributed::Placement& tokens,
               const HeadPlacement& heads, Index tag);

  /// From [batch, heads, own tokens, dim] of every operand, of each rank's head of the round.
  void start_to_heads(const std::vector<AnyView>& operands, Index round);
  /// To [1, 1, all tokens, dim] of this rank's head.
  void finish_to_heads(std::vector<Tensor>& whole);

  /// The way back, from results [1, 1, all tokens, dim] to [batch, heads, own tokens, dim]. Ranks
  /// without a head in this round give shapes.
  void start_to_tokens(const std::vector<AnyView>& results, Index round);
  void finish_to_tokens(const std::vector<AnyMutableView>& own);

 private:
  /// Rows of a rank's tokens among all, and in its own memory.
  std::vector<RowRun> runs_among_all(Index rank) const;
  std::vector<RowRun> own_run(Index rank) const;
  void send(Index rank, std::size_t bytes);
  void receive(Index rank, std::size_t bytes);

  Communicator& communicator_;
  const distributed::Placement& tokens_;
  const HeadPlacement& heads_;
  Index tag_;
  Index round_ = -1;
  IndexedVector<Buffer<std::byte>> sent_, received_;  // by rank
  MessageSet messages_;                               // last: gone before their memory
};

}  // namespace rapt::detail
