#pragma once

#include "head_report/head_probe.h"

namespace rapt::detail {

/// Cosine of the probabilities of every two heads of a call, as long vectors over the last queries
/// and all their keys. [heads * heads], row-major; NaN if logits cannot be added, as with a
/// softcap.
///
/// The probabilities of two heads multiply to exp(z + z' - lse - lse'), and z + z' are the logits
/// of a head that has the channels of both: a sum over keys is one more lse, in linear memory.
std::vector<double> similarities(const AttentionCall& call, const Context& context);

}  // namespace rapt::detail
