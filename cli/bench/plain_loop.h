#pragma once

#include "rapt/tensor.h"

namespace rapt::cli {

/// What one writes before reaching for a library: for each head, all scores, then the sum over the
/// values. One query, q [1, heads, 1, dim], k and v [1, kv_heads, keys, dim]; one thread.
void plain_loop(const Tensor& q, const Tensor& k, const Tensor& v, Tensor& out);

}  // namespace rapt::cli
