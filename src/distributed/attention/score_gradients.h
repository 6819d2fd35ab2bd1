#pragma once

#include "distributed/attention/backward_part.h"

namespace rapt::detail {

/// Gradients of what is learned of the score, summed over all ranks: in the order of the ranks or,
/// if strict, in that of one machine. `own` is the input of this rank's queries.
Gradients score_gradients(const RankCall& call, BackwardPart& part, const BackwardInput& own);

/// Whether a dense bias has a gradient.
bool wants_dense_gradient(const Attention& how);

}  // namespace rapt::detail
