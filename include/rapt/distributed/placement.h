#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rapt/pattern.h"
#include "rapt/tensor.h"

namespace rapt::distributed {

/// Which rank has which tokens of a sequence. Tokens move in tiles of 64; a rank keeps its tokens
/// in ascending order. A rank may have none.
class RAPT_API Placement {
 public:
  /// rank_of_tile[i]: who has tokens 64 i .. 64 i + 63.
  Placement(Index tokens, Index ranks, std::vector<std::int32_t> rank_of_tile);

  /// One stretch of the sequence for each rank.
  static Placement contiguous(Index tokens, Index ranks);
  /// Two: one from the front, one from the back. Balances causal attention.
  static Placement zigzag(Index tokens, Index ranks);

  Index tokens() const { return tokens_; }
  Index ranks() const { return ranks_; }
  Index tiles() const { return static_cast<Index>(rank_of_tile_.size()); }
  Index rank_of_tile(Index tile) const;
  /// Tiles of a rank, ascending.
  std::span<const Index> tiles(Index rank) const;
  /// How many tokens a rank has, and their positions in the sequence, ascending.
  Index tokens(Index rank) const;
  std::vector<Index> positions(Index rank) const;
  bool operator==(const Placement&) const = default;

 private:
  Index tokens_ = 0, ranks_ = 1;
  std::vector<std::int32_t> rank_of_tile_;
  std::vector<Index> tiles_, begins_;  // tiles rank after rank, and where each rank's begin
};

struct PlacementOptions {
  /// Tiles that stay together, at least. Whole groups of eight make all gradients of strict
  /// attention independent of the number of ranks.
  Index granule = 1;
  /// Work of a token outside attention, in (query, key) pairs.
  double token_cost = 0;
};

/// Balances the (query, key) pairs of the patterns of all layers, with as many tokens on each rank
/// as the granule allows: contiguous, zigzag or by weight, whichever is predicted to be fastest.
RAPT_API Placement balanced_placement(Index tokens, Index ranks, std::span<const Pattern> patterns,
                                      const PlacementOptions& options = {});

/// The tokens of one rank out of [batch, heads, tokens, dim].
RAPT_API Tensor shard(AnyView whole, const Placement& placement, Index rank);
/// Writes the tokens of one rank to their places.
RAPT_API void unshard_into(AnyMutableView whole, AnyView shard, const Placement& placement,
                           Index rank);

}  // namespace rapt::distributed
