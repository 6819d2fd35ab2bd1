#pragma once

#include <memory>

#include "rapt/distributed/placement.h"
#include "rapt/pattern.h"

namespace rapt::distributed {

struct ExchangeOptions {
  /// The bits of one machine, whatever the number of ranks: only keys travel forward, and backward
  /// computes every gradient where its token is (7 products instead of 5).
  bool strict = false;
  /// Query heads per key head: what a tile of queries costs to send next to one of keys and values.
  Index group = 1;
};

/// Tiles of 64 tokens that a rank sends and receives for each head, forward.
struct Traffic {
  Index keys_sent = 0, keys_received = 0;        // tiles of keys and values
  Index queries_sent = 0, queries_received = 0;  // tiles of queries, whose results travel back
};

/// What attention over ranks sends: the key tiles that the queries of each rank visit. Where a few
/// queries see many keys (global tokens), those queries travel instead, and their results come
/// back.
///
/// Immutable and cheap to copy; build it once, on every rank, and share it between layers and
/// steps.
class RAPT_API Exchange {
 public:
  /// Every token is a query and a key.
  Exchange(const Pattern& pattern, const Placement& placement, const ExchangeOptions& options = {});
  /// Queries and keys are different tokens, as in cross-attention.
  Exchange(const Pattern& pattern, const Placement& queries, const Placement& keys,
           const ExchangeOptions& options = {});

  const Pattern& pattern() const;
  const Placement& queries() const;
  const Placement& keys() const;
  const ExchangeOptions& options() const;
  Traffic traffic(Index rank) const;

  struct Impl;

 private:
  friend struct detail::Access;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace rapt::distributed
