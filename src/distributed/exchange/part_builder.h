#pragma once

#include <functional>

#include "distributed/exchange/exchange_parts.h"

namespace rapt::detail {

/// Tiles of a part as they are collected: own ones are `here`, others in what their rank sent.
class PartTilesBuilder {
 public:
  explicit PartTilesBuilder(const distributed::Placement& placement) : placement_(placement) {}

  /// All tiles of a rank, in its own memory.
  void add_own(Index rank);
  /// Tiles that `from.peer` sends as the source of this number.
  void add_received(const PeerTiles& from, Index source);
  PartTiles finish();

 private:
  struct Tile {
    Index number;
    TilePlace place;
  };
  const distributed::Placement& placement_;
  std::vector<Tile> tiles_;
};

/// Whether a part visits the keys of a rank from a query tile of the whole call.
using MaySee = std::function<bool(Index query_tile, Index key_rank)>;

/// The plan of a part: visits of its query tiles over its key tiles, numbered as in the part.
std::shared_ptr<const Plan> plan_of_part(const Plan& whole, const CallPart& part,
                                         const distributed::Placement& keys, const MaySee& may_see);

}  // namespace rapt::detail
