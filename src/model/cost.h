#pragma once

#include "rapt/model.h"

namespace rapt {

/// Arithmetic of a forward pass over `items` sequences of `tokens` tokens (and as many sources for
/// an encoder-decoder): two for every weight and token, four for every channel and pair that
/// attention looks at. A training step takes three times as much.
double forward_flops(const Transformer& model, Index items, Index tokens);

}  // namespace rapt
