#pragma once

#include <vector>

#include "base/buffer.h"
#include "distributed/attention/rank_call.h"

namespace rapt::detail {

/// Moves whole heads between ranks instead of tokens: every (batch item, head) is computed on one
/// rank, which gets all tokens of it. For patterns whose keys are known only once all tokens are
/// seen.
class HeadExchange {
 public:
  HeadExchange(Communicator& communicator, const distributed::Placement& placement,
               Index batch_heads);

  /// The heads of a rank, counted as item * heads + head.
  HeadRange heads_of(Index rank) const;
  HeadRange own_heads() const { return heads_of(communicator_.rank()); }

  /// From [batch, heads, own tokens, dim] of every operand to [1, own heads, all tokens, dim].
  std::vector<Tensor> to_heads(const std::vector<AnyView>& operands) const;
  /// And back, into `shape`s [batch, heads, own tokens, dim] with the types of the operands.
  std::vector<Tensor> to_tokens(const std::vector<AnyView>& operands, Index batch,
                                Index heads) const;

 private:
  using Buffers = IndexedVector<Buffer<std::byte>>;
  /// Rows of a rank's tokens in a head that has all of them, or has its own only.
  std::vector<RowRun> runs_among_all(Index rank) const;
  std::vector<RowRun> own_run(Index rank) const;
  Buffers exchange(const Buffers& to_send, const IndexedVector<Index>& received_bytes) const;

  Communicator& communicator_;
  const distributed::Placement& placement_;
  Index batch_heads_;
};

}  // namespace rapt::detail
