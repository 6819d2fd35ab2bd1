#pragma once

#include <optional>

#include "rapt/distributed/prediction.h"

namespace rapt::cli {

/// What attention computes here, counted over all pairs of visited tiles.
struct AttentionSpeed {
  double forward_gflops, backward_gflops;
};

/// Takes about half a second.
AttentionSpeed measure_attention_speed(const distributed::CallSize& size,
                                       std::optional<Index> threads);

}  // namespace rapt::cli
