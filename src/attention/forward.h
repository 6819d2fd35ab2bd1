#pragma once

#include "attention/call.h"

namespace rapt {

/// Where forward writes.
struct ForwardOutput {
  MutableView out;  // [batch, heads, queries, value_dim]
  Tensor* lse;
  Rows* rows;
  Stats* stats;  // null unless asked for
};

void run_forward(const Call& call, const ForwardOutput& output);

}  // namespace rapt
