#pragma once

#include <optional>
#include <vector>

#include "rapt/distributed/exchange.h"
#include "rapt/enum_names.h"

// What attention over ranks costs, before it runs: on machines that you have, and on those that you
// do not have.

namespace rapt::distributed {

/// Shapes of a call besides its tokens.
struct CallSize {
  Index batch = 1, heads = 8, kv_heads = 8;
  Index dim = 64, value_dim = 64;
  Type type = Type::f32;
};

/// What one rank computes and sends.
struct RankLoad {
  Index tokens = 0;
  // For each head.
  double pairs = 0;      // (query, key) pairs that its queries see
  double computed = 0;   // pairs in the tiles that it computes, for itself and for other ranks
  Traffic traffic = {};  // forward
  // Of the call.
  Index messages = 0;  // that it sends forward; about as many again backward
  double forward_bytes_sent = 0, forward_bytes_received = 0;
  double backward_bytes_sent = 0, backward_bytes_received = 0;
};

struct RAPT_API ExchangeLoad {
  std::vector<RankLoad> ranks = {};
  bool strict = false;
  /// Whether keys of some queries stand for those of the queries between them.
  bool estimated = false;
  double pairs = 0;     // for each head
  double computed = 0;  // by one rank alone
  /// What any way to exchange tiles of 64 tokens sends at least. For each pair of ranks, either the
  /// query tile or the key tile of every visit has to travel: a vertex cover, which costs at least
  /// what a matching of query tiles to key tiles weighs. A strict exchange, where keys have to
  /// travel, and an estimate count their own way.
  double forward_bytes_needed = 0, backward_bytes_needed = 0;

  double forward_bytes() const;  // that all ranks send
  double backward_bytes() const;
  /// The most that a rank computes, over the average; 1 is balanced.
  double imbalance() const;
};

/// Exact. Time and memory are those of the exchange of every rank.
RAPT_API ExchangeLoad load_of(const Exchange& exchange, const CallSize& size = {});

/// An estimate for any length in little time and memory: looks at about so many queries of each
/// rank, and lets the ends of their key ranges move evenly in between. Exact up to a tile for
/// windows, causal and global tokens; patterns that jump more often than it looks come out blurred.
RAPT_API ExchangeLoad estimated_load(const Pattern& pattern, const Placement& placement,
                                     const ExchangeOptions& options = {}, const CallSize& size = {},
                                     Index queries_of_rank = 64);
/// The placement that goes with it, as balanced_placement chooses.
RAPT_API Placement estimated_placement(Index tokens, Index ranks, const Pattern& pattern);

/// The machines, all alike, one rank on each.
struct Machine {
  /// What a rank computes: flops of the products over all pairs of visited tiles.
  double forward_gflops = 0, backward_gflops = 0;
  double network_gbits = 10;  // per second, in each direction
  double latency_us = 20;     // of a message
  /// The part of a transfer that runs beside computation. Ranks that share memory copy with their
  /// own CPUs: 0.
  double overlap = 1;
  /// Ranks that compute at the same time, where ranks share CPUs; all if absent.
  std::optional<Index> ranks_at_once = std::nullopt;
};

enum class RankPass { forward, backward, both };

}  // namespace rapt::distributed

template <>
inline constexpr rapt::EnumNames rapt::enum_names<rapt::distributed::RankPass>{
    "pass", "forward, backward, both"};

namespace rapt::distributed {

struct Prediction {
  double time_ms = 0;
  double one_rank_ms = 0;
  double efficiency = 0;     // one_rank_ms / (ranks * time_ms)
  double waiting_share = 0;  // of the time of the slowest rank
  Index slowest = 0;
};

/// Multiply-adds count 2: of one pair and one head.
RAPT_API double pair_flops(const CallSize& size, RankPass pass, bool strict = false);

/// A rank computes while the messages of the next heads are under way. What is left: those of the
/// first heads, results that return at the end, what the network takes longer than the
/// computation, and the slowest rank.
RAPT_API Prediction predict(const ExchangeLoad& load, const CallSize& size, const Machine& machine,
                            RankPass pass);

}  // namespace rapt::distributed
