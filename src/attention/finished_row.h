#pragma once

#include "attention/call.h"

namespace rapt::detail {

/// One finished query row, as the statistics need it.
struct FinishedRow {
  Index r;  // in its tile
  Index head;
  Index row;         // in [batch, heads, queries]
  double first_key;  // log2 of key 0's unnormalised probability
  double max, sum;   // denominator sum * 2^max, sink included
};

void write_stats(const Call& call, const SoftmaxTile& state, const FinishedRow& row, Stats& stats);
/// Zeros, [batch, heads, queries].
Stats make_stats(const Shape& shape);

}  // namespace rapt::detail
