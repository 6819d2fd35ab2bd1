#pragma once

#include "attention/call.h"

namespace rapt {

/// Where forward writes.
struct ForwardOutput {
  AnyMutableView out;  // [batch, heads, queries, value_dim]
  Tensor* lse;
  Rows* rows;
  Stats* stats;  // null unless asked for
};

/// Query tiles that one task takes past the keys side by side.
inline constexpr Index forward_group = 4;

void run_forward(const Call& call, const ForwardOutput& output);

}  // namespace rapt
