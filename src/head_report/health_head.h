#pragma once

#include <vector>

#include "rapt/health.h"

namespace rapt::lab {

/// One head of a call: [1, 1, tokens, dim] of queries and keys, and how they meet.
struct OneHead {
  View q, k;
  Attention how;
};
OneHead head_of(const AttentionCall& call, Index head);

/// Distances up to the longest text's: all near ones, then some of every octave, the powers of two
/// among them.
std::vector<Index> distance_grid(Index longest);

/// Tokens of a map's cell if its sides may have so many; 1 if there is no map.
Index map_tile(Index tokens, Index largest_side);

/// Measures heads of one length. Everything is the output of one attention call for each head, over
/// values that are indicators: of the tile that a key lies in, of the first tokens, and, as
/// relative values, of how far away it is.
class HeadProbe {
 public:
  HeadProbe(Index tokens, const ModelHealth& plan, Index map_side);

  Index tokens() const { return tokens_; }
  HeadHealth measure(const OneHead& head, const Context& context) const;

 private:
  void add_distances(const Tensor& out, HeadHealth& made) const;
  void add_map(const Tensor& out, HeadHealth& made) const;

  Index tokens_, pinned_;
  std::vector<Index> distances_;
  Index map_tile_, side_;  // columns of the map; 0: there is none
  Tensor values_;          // [1, 1, tokens, columns]
  Tensor table_;           // [2 tokens - 1, columns]
};

/// Fills in `evenness`, from the number of keys that each query may see, and `kind`.
void judge(HeadHealth& head, const Pattern& pattern, const HeadProbe& probe);

}  // namespace rapt::lab
