#pragma once

#include "attention/pattern/pattern_node.h"
#include "base/indexed_vector.h"
#include "rapt/longformer.h"

namespace rapt::detail {

/// The tokens of one batch item by their classes, and the patterns that follow from them.
class LongformerTokens {
 public:
  LongformerTokens(const Longformer& how, Index item, Index tokens);

  const std::vector<Index>& globals() const { return globals_; }
  /// Local tokens as queries; the others see nothing.
  Pattern local(Index dilation) const;
  /// Global tokens as queries, in ascending order.
  Pattern global() const;

 private:
  Ranges window_of(Index position, Index dilation) const;

  const Longformer& how_;
  Index tokens_;
  IndexedVector<TokenClass> classes_;
  std::vector<Index> globals_;
  Ranges global_ranges_, real_ranges_;  // real: all but padding
};

}  // namespace rapt::detail
