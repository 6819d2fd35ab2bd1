#pragma once

#include "rapt/tensor.h"

namespace rapt::detail {

/// Rows whose channels are rotated in pairs, each row by the angles of its own table row.
struct RotaryRows {
  const void* from;
  Type from_type;
  Index from_stride;  // in numbers, between rows
  void* to;           // may be `from`, with the same type and stride
  Type to_type;
  Index to_stride;
  Index count, dim;
  Index pairs;                  // channels behind them are copied
  const float* const* cos_sin;  // row r: cos_sin[r * cos_sin_step], all cosines and then all sines
  Index cos_sin_step;           // 0: all rows have the same angles
  bool inverse;                 // by the negative angles
};

/// Rotary positions: the partner of a channel is half the rotated width away, or its neighbour.
struct RopeKernels {
  void (*rotate_half_split)(const RotaryRows& rows) noexcept;
  void (*rotate_interleaved)(const RotaryRows& rows) noexcept;
};

}  // namespace rapt::detail
