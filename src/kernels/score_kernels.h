#pragma once

#include "kernels/tile.h"

namespace rapt::detail {

/// Relative positions that a tile of (query, key) pairs spans, and one more.
inline constexpr Index band_width = 2 * tile;

/// Decides which probabilities of a tile dropout keeps.
struct DropoutTile {
  std::uint32_t key[2];     // the seed
  std::uint32_t stream;     // batch item and head
  std::uint32_t row;        // first query of the tile
  std::uint32_t column;     // first key of the tile, a multiple of 64
  std::uint64_t threshold;  // a number is dropped if its 32 random bits are below
  float keep;               // factor of the others
};

/// Steps on tiles of scores and on the sums of their softmax, in f32 whatever the products
/// multiply.
struct ScoreKernels {
  // From products to logits, in place.
  void (*softcap)(float* scores, Index row_strips, const Clip* clips, float cap,
                  float* tanh_out) noexcept;
  void (*add_diagonal)(float* scores, Index row_strips, const Clip* clips,
                       const float* diagonal) noexcept;
  void (*add_tile)(float* scores, Index row_strips, const Clip* clips, const float* bias) noexcept;
  void (*add_band)(float* scores, Index row_strips, const Clip* clips, const float* band) noexcept;
  // And back.
  void (*softcap_backward)(float* dlogits, const float* tanh_of, Index rows) noexcept;
  void (*sum_diagonals)(const float* dlogits, Index rows, double* diagonals) noexcept;  // [127]

  void (*dropout)(float* scores, Index rows, const DropoutTile& how) noexcept;

  // Moves the f32 sums of a softmax into the f64 ones; its output row times a factor.
  void (*flush)(SoftmaxTile& state, Index rows) noexcept;
  void (*finish)(const SoftmaxTile& state, Index row, double factor, Index dim,
                 float* out) noexcept;
};

}  // namespace rapt::detail
