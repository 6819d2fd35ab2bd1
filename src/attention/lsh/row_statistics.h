#pragma once

#include "rapt/tensor.h"

namespace rapt::detail {

/// The denominator of one token over all rounds of hashing, from those of each round, as natural
/// logarithms. A token that sees only itself has logits of -1e5; down there Transformers' f32
/// denominators, rounded in each round and once more over the rounds, are off by a few parts in a
/// thousand, and so are its probabilities. Reproduced where keys are shared.
double joint_lse(const double* of_round, Index rounds, bool shared);

/// The same as the row statistics of Rows.
struct RowStatistics {
  float max;
  double sum;
};
RowStatistics row_statistics(double lse, bool shared);

}  // namespace rapt::detail
