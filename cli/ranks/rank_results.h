#pragma once

#include <optional>
#include <vector>

#include "cli/ranks/benched_ranks.h"

namespace rapt::cli {

/// What the calls of a case return, of all tokens or of those of a rank.
struct RankResults {
  Tensor out;
  Gradients gradients;  // empty after forward alone
};

/// Rank 0, which has what one rank computes, compares it with what every rank has. Every rank calls
/// it; only rank 0 gets an answer.
RankDifference compare_results(Communicator& communicator, const RankResults& got,
                               const std::optional<RankResults>& want,
                               const distributed::Placement& placement);

/// By rank, on every rank.
std::vector<RankSamples> gather_samples(Communicator& communicator, const RankSamples& mine);

}  // namespace rapt::cli
