#pragma once

#include "kernels/tile.h"

namespace rapt::detail {

/// What the backward pass of a softmax needs of 64 query rows.
struct SoftmaxGradient {
  const float* running_max;  // [64] from forward, finite
  const float* delta;        // [64] sum(dout * out) / denominator
};

/// Kernels over tiles of 64 queries and 64 keys, by the type that products multiply. A tile of
/// scores is [64][64] floats, row-major, 64-byte aligned; operands come packed.
///
/// Packing takes up to 64 rows of `dim` numbers of any type and fills up with zeros; it returns
/// whether all packed numbers are finite. Products touch only the rows and columns inside the
/// clips; null clips: all of them. `masks` is [64], null for a whole tile.
template <class T>
struct TileKernels;

/// f32: products of numbers widened as they are packed.
///
// clang-format off
///   strips  [16][depth][4]                   rows of a left operand
///   panels  [ceil(64/panel)][depth][panel]   64 columns of a right operand; the last may be narrower
///   rows    [ceil(width/panel)][64][panel]   64 rows of a right operand, packed the same way
// clang-format on
template <>
struct TileKernels<float> {
  Index panel;
  Index depth_unit, width_unit;  // packed depths and widths are multiples of these

  // Each row times its factor; null: 1.
  bool (*pack_strips)(const InputRows& rows, Index dim, const double* factors, float* out) noexcept;
  bool (*pack_panels)(const InputRows& rows, Index dim, const double* factors, float* out) noexcept;
  bool (*pack_rows)(const InputRows& rows, Index dim, const double* factors, float* out) noexcept;

  // scores = strips · panels; out[64][width] += scores · rows; out[64][width] += scores' · rows.
  void (*scores)(const float* left_strips, const float* panels, Index depth, Index row_strips,
                 const Clip* clips, float* scores) noexcept;
  void (*accumulate_values)(const float* scores, const float* rows, Index width, Index row_strips,
                            const Clip* clips, float* out) noexcept;
  void (*accumulate_transposed)(const float* scores, const float* rows, Index width,
                                const Clip* query_clips, float* out) noexcept;

  // The online softmax: probabilities in place of the logits. distance: position of row 0 minus
  // position of column 0.
  void (*online_softmax)(float* scores, Index rows, const Clip* clips, const std::uint64_t* masks,
                         SoftmaxTile& state) noexcept;
  void (*online_softmax_stats)(float* scores, Index rows, const Clip* clips,
                               const std::uint64_t* masks, SoftmaxTile& state,
                               Index distance) noexcept;
  // Logits become probabilities, and dprobs the gradients of logits.
  void (*softmax_backward)(float* scores, float* dprobs, Index rows, const std::uint64_t* masks,
                           const SoftmaxGradient& state) noexcept;
};

/// 64 queries against 64 keys whose logits are scaled products and nothing more.
struct Bf16ForwardTile {
  const Bf16* queries;         // strips
  Index depth;                 // dim in multiples of depth_unit
  const Bf16* keys;            // panels
  const Bf16* values;          // rows
  Index rows;                  // queries that exist
  const std::uint64_t* masks;  // [64], null for a whole tile
  const float* factors;        // [64] of q·k, all positive
  float* scores;               // scratch: [64][64]
  Bf16* probabilities;         // scratch: [64][64]
};

/// The same tiles in backward.
struct Bf16BackwardTile {
  const Bf16* queries;       // strips
  const Bf16* douts;         // strips
  Index depth, value_depth;  // in multiples of depth_unit
  const Bf16* keys;          // panels
  const Bf16* values;        // panels
  const Bf16* key_rows;      // rows
  Index width;
  Index rows;                  // queries that exist
  const std::uint64_t* masks;  // [64], null for a whole tile
  const float* factors;        // [64] of q·k, all positive
  const float* query_scales;   // [64] of `dlogits`, null: 1
  SoftmaxGradient state;
  float *scores, *dprobs;         // scratch: [16][64]
  Bf16* dlogit_strips;            // scratch: [16][64]
  Bf16 *probabilities, *dlogits;  // interleaved: what dV and dK are made of
  float* dqueries;                // [64][width], added to
};

/// bf16: products are exact and summed in f32; probabilities are rounded to bf16, logits never are.
///
// clang-format off
///   strips       [64][depth]          rows as they are, depth in multiples of 32
///   columns      [width][64]          the same transposed
///   panels       [depth / 2][64][2]   64 columns of a right operand, two terms of the sum adjacent
///   rows         [2][16][width][2]    64 rows of a right operand, rows i and i + 16 of each 32 adjacent
///   interleaved  [32][64][2]          64 rows of scores, rows 2 i and 2 i + 1 adjacent
// clang-format on
/// The order of terms in a sum is free as long as both operands agree: rows i and i + 16 are in two
/// neighbouring vectors of probabilities, so that no number crosses lanes.
template <>
struct TileKernels<Bf16> {
  Index depth_unit, width_unit;  // packed depths and widths are multiples of these

  // Strips and columns take rows of bf16.
  void (*pack_strips)(const InputRows& rows, Index dim, Index depth, Bf16* out) noexcept;
  bool (*pack_columns)(const InputRows& rows, Index dim, Index width, Bf16* out) noexcept;
  bool (*pack_panels)(const InputRows& rows, Index dim, Index half_depth, Bf16* out) noexcept;
  bool (*pack_rows)(const InputRows& rows, Index dim, Index width, Bf16* out) noexcept;

  // scores = strips · panels; out[64][width] += left · rows; out[width][64] += columns ·
  // interleaved. Blocks of 16 rows x 32 columns or depths that no clip touches are left out.
  void (*scores)(const Bf16* left, Index depth, const Bf16* panels, Index rows, const Clip* clips,
                 float* scores) noexcept;
  void (*accumulate_values)(const Bf16* left, const Bf16* right_rows, Index width, Index rows,
                            const Clip* clips, float* out) noexcept;
  void (*accumulate_transposed)(const Bf16* columns, const Bf16* interleaved, Index width,
                                float* out) noexcept;

  // scores[r][c] *= factors[r]
  void (*scale)(float* scores, Index rows, const Clip* clips, const float* factors) noexcept;
  // The online softmax; probabilities as a left operand. The sums are those of the rounded ones.
  // Logits are scores times the factors (null: 1); large ones replace the scores.
  void (*online_softmax)(float* scores, Index rows, const Clip* clips, const std::uint64_t* masks,
                         const float* factors, SoftmaxTile& state, Bf16* probabilities) noexcept;
  // Zeros where `kept` [64][64] is zero.
  void (*zero_dropped)(const float* kept, Index rows, Bf16* probabilities) noexcept;
  // scores, online_softmax and accumulate_values in blocks small enough to keep AMX awake.
  void (*forward)(const Bf16ForwardTile& visit, SoftmaxTile& state) noexcept;

  // The same blocks in backward, but for dV and dK.
  void (*backward)(const Bf16BackwardTile& visit) noexcept;
  // Logits become probabilities, and dprobs the gradients of logits; zeros where the masks hide.
  // The bits of `backward`.
  void (*softmax_backward)(float* logits, float* dprobs, Index rows, const std::uint64_t* masks,
                           const SoftmaxGradient& state) noexcept;

  // Scores [64][64] rounded: as a left operand, and interleaved, times a factor per row (null: 1).
  // Rows from `rows` on become zero.
  void (*pack_scores)(const float* scores, Index rows, Bf16* left) noexcept;
  void (*pack_interleaved)(const float* scores, Index rows, const float* factors,
                           Bf16* interleaved) noexcept;
  // [width][64] to [64][width]
  void (*transpose)(const float* columns, Index width, float* rows) noexcept;
};

}  // namespace rapt::detail
