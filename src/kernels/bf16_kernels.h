#pragma once

#include "kernels/kernels.h"

namespace rapt {

/// Rows that one product of tiles owns.
inline constexpr Index block_rows = 16;

/// 64 queries against 64 keys whose logits are scaled products and nothing more.
struct PairVisit {
  const Bf16* queries;         // [64][depth]
  Index depth;                 // dim in multiples of 32
  const Bf16* keys;            // [depth / 2][64][2]
  const Bf16* values;          // [2][16][width][2]
  Index rows;                  // queries that exist
  const std::uint64_t* masks;  // [64], null for a whole tile
  const float* factors;        // [64] of q·k, all positive
  float* scores;               // room: [64][64]
  Bf16* probabilities;         // room: [64][64]
};

/// The same tiles in backward.
struct PairGradientVisit {
  const Bf16* queries;       // [64][depth]
  const Bf16* douts;         // [64][value_depth]
  Index depth, value_depth;  // in multiples of 32
  const Bf16* keys;          // [depth / 2][64][2]
  const Bf16* values;        // [value_depth / 2][64][2]
  const Bf16* key_rows;      // [2][16][width][2]
  Index width;
  Index rows;                  // queries that exist
  const std::uint64_t* masks;  // [64], null for a whole tile
  const float* factors;        // [64] of q·k, all positive
  const float* query_scales;   // [64] of dlogit_pairs, null: 1
  GradientTile state;
  float *scores, *dprobs;                  // room: [16][64]
  Bf16* left;                              // room: [16][64]
  Bf16 *probability_pairs, *dlogit_pairs;  // natural pairs [32][64][2]: what dV and dK are made of
  float* dqueries;                         // [64][width], added to
};

/// The inner loops over bf16 operands: what AMX and AVX512-BF16 are made for. Products are exact
/// and summed in f32; probabilities are rounded to bf16, logits never are.
///
/// Operands:
// clang-format off
///   left      [64][depth]              rows as they are, depth in multiples of 32
///   columns   [width][64]              the same transposed
///   pairs     [depth / 2][64][2]       64 columns of a right operand, two terms of the sum side by side
///   row pairs [2][16][width][2]        64 rows of a right operand, rows i and i + 16 of each 32 side by side
// clang-format on
/// The order of terms in a sum is free as long as both sides agree: rows i and i + 16 are what two
/// neighbouring vectors of probabilities give without moving a number across lanes.
struct PairKernels {
  const char* engine;

  /// Between the two this thread may call the products.
  void (*begin)() noexcept;
  void (*end)() noexcept;

  // Rows of bf16, zeros around them. False if a number of the columns is not finite.
  void (*pack_left)(const InputRows& rows, Index dim, Index depth, Bf16* out) noexcept;
  bool (*pack_columns)(const InputRows& rows, Index dim, Index width, Bf16* out) noexcept;

  // Products. Blocks of 16 rows x 32 columns or depths that no clip touches are left out; null
  // clips: none is.
  void (*scores)(const Bf16* left, Index depth, const Bf16* pairs, Index rows, const Clip* clips,
                 float* scores) noexcept;
  void (*gather)(const Bf16* left, const Bf16* row_pairs, Index width, Index rows,
                 const Clip* clips, float* out) noexcept;
  // out[width][64] += columns · natural pairs [32][64][2] of rows 2i and 2i + 1.
  void (*gather_columns)(const Bf16* columns, const Bf16* natural_pairs, Index width,
                         float* out) noexcept;

  // scores[r][c] *= factors[r]
  void (*scale)(float* scores, Index rows, const Clip* clips, const float* factors) noexcept;
  // The running softmax; probabilities as a left operand. The sums are those of the rounded ones.
  // Logits are scores times the factors (null: 1); large ones are left in place of the scores.
  void (*absorb)(float* scores, Index rows, const Clip* clips, const std::uint64_t* masks,
                 const float* factors, SoftmaxTile& state, Bf16* probabilities) noexcept;
  // Zero where `kept` [64][64] is.
  void (*erase)(const float* kept, Index rows, Bf16* probabilities) noexcept;
  // scores, absorb and gather in blocks small enough to keep the tile unit awake.
  void (*visit)(const PairVisit& visit, SoftmaxTile& state) noexcept;

  // Backward of a visit but for dV and dK, in blocks as small.
  void (*differentiate)(const PairGradientVisit& visit) noexcept;
  // Of logits and gradients of probabilities, probabilities and gradients of logits in their place;
  // zeros where the masks hide. The bits of `differentiate`.
  void (*differentiate_logits)(float* logits, float* dprobs, Index rows, const std::uint64_t* masks,
                               const GradientTile& state) noexcept;

  // Numbers [64][64] rounded: as a left operand, and as natural pairs of rows, times a factor per
  // row (null: 1). Rows from `rows` on become zero.
  void (*pack_numbers)(const float* numbers, Index rows, Bf16* left) noexcept;
  void (*pack_natural)(const float* numbers, Index rows, const float* factors,
                       Bf16* pairs) noexcept;

  // Products of matrices of any size; numbers of other types are rounded as they are packed, to
  // nearest, ties to even.
  BlockKernels<Bf16> matrix;

  // Rotary positions, as in Kernels; null: no better than those.
  void (*rotate_far)(const RotaryRows& rows) noexcept;
  void (*rotate_near)(const RotaryRows& rows) noexcept;

  // [width][64] to [64][width]
  void (*transpose)(const float* columns, Index width, float* rows) noexcept;

  double (*peak_loop)(Index iterations) noexcept;  // flops done
};

/// While it lives, this thread may call the products. Null: there are none.
class PairSession {
 public:
  explicit PairSession(const PairKernels* pairs) : pairs_(pairs) {
    if (pairs_ != nullptr) pairs_->begin();
  }
  ~PairSession() {
    if (pairs_ != nullptr) pairs_->end();
  }
  PairSession(const PairSession&) = delete;
  PairSession& operator=(const PairSession&) = delete;

 private:
  const PairKernels* pairs_;
};

enum class PairEngine { tiles, vectors, portable };

/// Null if this CPU cannot run it. The portable one runs anywhere, slower than f32 products: it is
/// how the code around the other two is tested.
const PairKernels* pair_kernels_of(PairEngine engine);

}  // namespace rapt
