#pragma once

#include "support/truth/definition.h"

namespace rapt::test {

/// Whether decoding over an int8 cache multiplies whole numbers.
bool multiplies_int8(const Context& context);

/// Widens the truth of out and lse by what queries and probabilities in fixed point may cost
/// (docs/exactness.md). k and v of the problem are what the cache gives back.
void allow_int8(const Problem& problem, Defined& defined);

}  // namespace rapt::test
