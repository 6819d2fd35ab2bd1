#pragma once

#include "rapt/distributed/prediction.h"

namespace rapt::cli {

/// What attention computes here, counted over all pairs of visited tiles.
struct AttentionSpeed {
  double forward_gflops, backward_gflops;
};

/// Takes about half a second. threads = 0: the default.
AttentionSpeed measure_attention_speed(const distributed::CallSize& size, Index threads);

}  // namespace rapt::cli
