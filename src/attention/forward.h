#pragma once

#include "attention/lsh_rounds.h"
#include "attention/packed.h"

namespace rapt {

/// Where forward writes.
struct ForwardOutput {
  AnyMutableView out;  // [batch, heads, queries, value_dim]
  Tensor* lse;         // null with rows: not wanted
  Rows* rows;
  Stats* stats;                 // null unless asked for
  Index first_row = 0;          // where the call's rows begin in lse, rows and stats
  RoundSums* rounds = nullptr;  // takes all rows instead, where tokens meet in several rounds
};

/// Query tiles that one task takes past the keys side by side. Sorted slots pack their keys for
/// each task, so there longer tasks pack less twice.
inline constexpr Index most_forward_group = 8;
inline Index forward_group(const Call& call) {
  return call.slots == nullptr ? 4 : most_forward_group;
}

void run_forward(const Call& call, const ForwardOutput& output);
/// The same with keys and values from elsewhere; the call's own k and v are only shapes.
void run_forward(const Call& call, KeySource& keys, const ForwardOutput& output);

}  // namespace rapt
