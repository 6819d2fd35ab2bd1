#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "attention/call_part.h"
#include "base/access.h"
#include "rapt/distributed/exchange.h"
#include "rapt/plan.h"

namespace rapt::detail {

/// Tiles that travel between this rank and another one.
struct PeerTiles {
  Index peer;
  IndexedVector<Index> tiles;  // in the whole call, ascending
  Index tokens;
  bool operator==(const PeerTiles&) const = default;
};

/// By peer, ascending; peers without tiles are left out.
struct TileTransfer {
  std::vector<PeerTiles> in, out;
};

/// A part of the call that one rank computes, and what has to arrive before.
struct RankPart {
  CallPart tiles;
  std::shared_ptr<const Plan> plan;
  TileTransfer queries, keys;
};

/// What one rank computes.
struct RankParts {
  RankPart own;     // queries of this rank
  RankPart guests;  // queries of other ranks over keys of this one; forward, unless strict
  /// Backward: in one pass over own queries and guests; if strict, gradients of keys alone, over
  /// all queries that see them.
  RankPart backward;
};

}  // namespace rapt::detail

namespace rapt::distributed {
using namespace rapt::detail;

struct Exchange::Impl {
  Impl(const Pattern& pattern, const Placement& queries, const Placement& keys,
       const ExchangeOptions& options);

  /// Made when a rank first asks; ranks that are threads ask for different ones.
  const RankParts& parts(Index rank) const;

  Placement queries, keys;
  ExchangeOptions options;
  bool hashed;                       // the pattern has an lsh leaf: whole heads travel
  std::shared_ptr<const Plan> plan;  // of the whole call; null if hashed
  Pattern pattern;

 private:
  mutable std::mutex mutex_;
  mutable IndexedVector<std::unique_ptr<const RankParts>> parts_;
};

}  // namespace rapt::distributed
