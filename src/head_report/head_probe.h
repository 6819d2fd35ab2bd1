#pragma once

#include <vector>

#include "rapt/models/heads.h"

namespace rapt::detail {

/// One head of a call: queries and keys [1, 1, tokens, dim] and their attention.
struct OneHead {
  View q, k;
  Attention how;
};
OneHead head_of(const AttentionCall& call, Index head);

/// Distances up to the longest text's: all near ones, then some of every octave, including powers
/// of two.
std::vector<Index> distance_grid(Index longest);

/// Tokens per cell of a map with sides of at most `map_size`; 1 if there is no map.
Index map_tile(Index tokens, std::optional<Index> map_size);

/// Measures heads of one length. Everything is the output of one attention call per head over
/// indicator values: of the tile of a key, of the first tokens, and, as relative values, of the
/// distance.
class HeadProbe {
 public:
  HeadProbe(Index tokens, const HeadReport& plan, std::optional<Index> map_size);

  Index tokens() const { return tokens_; }
  HeadStats measure(const OneHead& head, const Context& context) const;

 private:
  void add_distances(const Tensor& out, HeadStats& made) const;
  void add_map(const Tensor& out, HeadStats& made) const;

  Index tokens_, pinned_;
  std::vector<Index> distances_;
  Index map_tile_, side_;  // columns of the map; 0: there is none
  Tensor values_;          // [1, 1, tokens, columns]
  Tensor table_;           // [2 tokens - 1, columns]
};

/// Fills in `normalized_entropy`, from the number of keys that each query may see, and `kind`.
void classify(HeadStats& head, const Pattern& pattern, const HeadProbe& probe);

}  // namespace rapt::detail
