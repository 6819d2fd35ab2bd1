#pragma once

#include "rapt/models/transformer.h"

namespace rapt::detail {

/// Pairs of a query and a key that one head of attention multiplies. Hashed ones are counted as if
/// every chunk were full.
double pairs_of(const Pattern& pattern, Lengths lengths);

/// Arithmetic of a forward pass over `items` sequences of `tokens` tokens (and as many sources for
/// an encoder-decoder): see inspect. A training step takes three times as much.
double forward_flops(const Transformer& model, Index items, Index tokens);

}  // namespace rapt::detail
