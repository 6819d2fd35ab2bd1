#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/case.h"
#include "cli/console/output.h"
#include "cli/ranks/rank_backend.h"
#include "cli/ranks/rank_network.h"
#include "rapt/distributed/exchange.h"
#include "rapt/distributed/prediction.h"

namespace rapt::cli {

using distributed::RankPass;

struct RankBenchSetup {
  bool strict = false;
  Index threads = 1;  // of each rank
  std::optional<std::string> isa = {};
  int repeats = 5;
};

/// What one rank measured, repeat by repeat.
struct RankSamples {
  std::vector<double> time_ms, waited_ms;  // all ranks
  std::vector<double> one_rank_ms;         // rank 0
  Index bytes_sent = 0;
};

/// How far the results of ranks are from those of one.
struct RankDifference {
  bool same_bits = true;
  double ulps = 0;  // largest, in units of the last place of the largest number of its row
};

/// One case: a call with all tokens on one rank, and the same call over ranks, in turns.
class BenchedRanks {
 public:
  BenchedRanks(const Case& c, const RankBenchSetup& setup);

  /// Every rank of every process calls it; rank 0 of them gets the row.
  std::optional<Json> measure(Communicator& communicator, RankPass pass, Index ranks) const;

  /// How the tokens of a case are placed.
  distributed::Exchange exchange(Index ranks) const;
  distributed::CallSize size() const;

 private:
  Json row(Communicator& communicator, RankPass pass, const distributed::Exchange& exchange,
           const std::vector<RankSamples>& samples, const RankDifference& difference,
           const RankNetwork& network) const;

  Case c_;
  RankBenchSetup setup_;
  Rule rule_;
  Tensor q_, k_, v_, dout_;
};

}  // namespace rapt::cli
