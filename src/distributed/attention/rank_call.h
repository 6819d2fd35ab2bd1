#pragma once

#include "attention/dispatch.h"
#include "distributed/attention/tile_messages.h"
#include "rapt/distributed/attention.h"

namespace rapt::detail {

/// Tags of the messages of one call: of the keys of even and of odd ranges of heads, and so on.
enum Tag : Index { tag_keys = 0, tag_queries = 2, tag_key_returns = 4, tag_query_returns = 6 };

/// Attention over ranks as one of them sees it: checked operands of its own tokens.
struct RankCall {
  RankCall(const char* where, Communicator& communicator, const distributed::Exchange& exchange,
           const AnyView& q, const AnyView& k, const AnyView& v, const Attention& how,
           const Context& context);

  const char* where;
  Communicator& communicator;
  const distributed::Exchange::Impl& exchange;
  AnyView q, k, v;
  Attention how;  // strict: routes that depend on how few the queries are would differ by rank
  const Context& context;

  Index rank() const { return communicator.rank(); }
  Lengths lengths() const { return {exchange.queries.tokens(), exchange.keys.tokens()}; }
  std::span<const Index> query_tiles() const { return exchange.queries.tiles(rank()); }
  std::span<const Index> key_tiles() const { return exchange.keys.tiles(rank()); }

  /// The whole call, as shapes: what routes are chosen for, the same on every rank.
  Request whole_request() const;
  /// A call of a part; `how` has the plan of the part.
  Request part_request(const RankPart& part, const Attention& how_of_part) const;

  /// Messages of keys and values for every other range of heads.
  TileMessages key_messages(const TileTransfer& transfer, Index parity) const;
  TileMessages query_messages(const TileTransfer& transfer, std::vector<AnyView> operands,
                              Index parity) const;
};

/// The attention of a part.
Attention how_of_part(const Attention& how, const RankPart& part);

/// Heads in ranges: while one is computed, the messages of the next are under way. Few if messages
/// would be short.
class HeadRanges {
 public:
  explicit HeadRanges(const RankCall& call);
  Index count() const;
  HeadRange at(Index i) const;

 private:
  Index heads_, step_;
};

}  // namespace rapt::detail
