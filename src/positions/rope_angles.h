#pragma once

#include <vector>

#include "base/indexed_vector.h"
#include "rapt/rope.h"

namespace rapt::detail {

/// Throws std::invalid_argument if an option makes no sense.
void check_rope_options(const RopeOptions& options);

/// Channels that form pairs; of a proportional rope all, though the last pairs do not rotate.
Index paired_channels(const RopeOptions& options);

/// Sequences of all lengths with the same number rotate alike.
Index length_class(const RopeOptions& options, Index tokens);

struct RopeAngles {
  IndexedVector<double> frequencies;  // of each pair, radians per position
  double attention_factor = 1;
};
/// For sequences of a class of lengths.
RopeAngles rope_angles(const RopeOptions& options, Index length);

/// The axis of positions that each pair follows; all 0 without sections.
std::vector<Index> axis_of_pairs(const RopeOptions& options);

}  // namespace rapt::detail
