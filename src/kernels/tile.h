#pragma once

#include <cstdint>

#include "rapt/tensor.h"

namespace rapt::detail {

/// Queries and keys meet in square tiles of this size; a mask row of a tile is one 64-bit word.
inline constexpr Index tile = 64;
/// Rows of one micro-kernel call. Four keep the operand loads low on every register file.
inline constexpr Index strip = 4;
inline constexpr Index strips = tile / strip;
/// Widest vector of any instruction set; buffers of "one vector per row" use it.
inline constexpr Index max_lanes = 16;
/// Largest dim of any operand.
inline constexpr Index max_dim = 512;

/// Two bf16 or four int8 values share a word of a tile; their slots are this far apart.
inline constexpr Index word_gap = 16;
/// Rows of words in a bf16 tile of values, and the slot of the lower half of a row.
inline constexpr Index bf16_word_rows = tile / 2;
constexpr Index first_slot_of_word(Index row) {
  return row / word_gap * 2 * word_gap + row % word_gap;
}

/// Columns [begin, end) of a tile that a strip of rows touches, in multiples of the vector width.
struct Clip {
  Index begin = 0;
  Index end = 0;
};
using Clips = Clip[strips];
inline constexpr Clip whole_row{0, tile};

/// Rows of the caller's memory, `stride` numbers apart.
struct InputRows {
  const void* data;
  Type type;
  Index stride;
  Index count;
  /// Row i is row order[i] of the memory, or zeros if that is negative; null: rows are in order.
  /// Only packing into f32 strips, panels and rows reads it.
  const std::int32_t* order = nullptr;
};

/// The exact online softmax of 64 query rows. Logits are in units of log2: p = exp2(z -
/// running_max).
struct SoftmaxTile {
  float* running_max;  // [64] p is relative to it; -inf until the row has seen a key
  float* lane_sums;    // [64][max_lanes] partial sums of p since the last flush
  double* sums;        // [64] sums up to the last flush
  float* out;          // [64][width] sum of p v since the last flush
  double* wide;        // [64][width] the same up to the last flush
  Index width;         // value_dim in whole vectors
  bool wide_used;      // false: `wide` and `sums` hold nothing yet
  float* shift;        // statistics only: [64] the first running max, which logits are relative to
  float* lane_stats;   // statistics only: [stat_count][64][max_lanes] since the last flush
  double* stats;       // statistics only: [stat_count][64] up to the last flush
};

/// Sums that Stats are made of. `largest` is a maximum; `others*` leave each lane's largest out.
enum Stat {
  stat_largest,
  stat_others,
  stat_others2,
  stat_others3,
  stat_pz,
  stat_z,
  stat_z2,
  stat_seen,
  stat_distance,
  stat_count
};

}  // namespace rapt::detail
