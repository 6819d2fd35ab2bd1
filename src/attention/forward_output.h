#pragma once

#include "rapt/attention.h"

namespace rapt::detail {

class RoundSums;

/// Where forward writes.
struct ForwardOutput {
  AnyMutableView out;  // [batch, heads, queries, value_dim]
  Tensor* lse;         // null, as rows are: not needed
  Rows* rows;
  Stats* stats;                 // null unless requested
  Index first_row = 0;          // where the call's rows begin in lse, rows and stats
  RoundSums* rounds = nullptr;  // takes all rows instead, where tokens meet in several rounds
};

/// Memory for what a call returns besides its output; rows: [batch, heads, queries].
Attended make_results(const Shape& rows, bool stats);

/// `to` receives the output.
ForwardOutput output_of(Attended& attended, const AnyMutableView& to);

}  // namespace rapt::detail
