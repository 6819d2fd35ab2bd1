#pragma once

#include "attention/call.h"
#include "attention/plan/tile_mask.h"
#include "attention/score/table_band.h"

namespace rapt {

/// 64 rows that a tile of queries is multiplied with: f32 panels, or pairs of bf16.
struct RightTile {
  const float* panels = nullptr;
  const Bf16* pairs = nullptr;
};

/// Makes the logits of one tile after the other for a tile of queries: product, relative keys,
/// soft-cap, biases. Forward and backward share it, so they see the same bits.
class Scoring {
 public:
  explicit Scoring(const Call& call);

  /// Packs the queries of a tile, times what the rule asks for.
  void take_queries(Index item, Index head, Index query_tile);

  /// Logits [64][64] in units of log2 of the pairs that mask() then tells; numbers outside its
  /// clips stay as they were. `tanh_out` keeps what the soft-cap needs in backward, if not null.
  void logits(RightTile keys, Index key_tile, std::int32_t mask_id, float* scores,
              float* tanh_out = nullptr);
  const TileMask& mask() const { return mask_; }
  /// Zeros where a token met itself and its logit was rewritten.
  void clear_self(float* dlogits) const;

  /// Whether logits are products times positive factors and nothing more, so that the pair kernels
  /// can go from products to probabilities by themselves, with the mask and what follows.
  bool is_plain() const { return plain_; }
  void take_mask(Index key_tile, std::int32_t mask_id);
  void products(RightTile keys, float* scores);
  const Bf16* left() const { return left_.data(); }
  const float* narrow_factors() const { return narrow_factors_.data(); }

  Index rows() const { return rows_; }
  Index row_strips() const { return divide_up(rows_, strip); }
  const double* factors() const { return factors_.data(); }

 private:
  void multiply(RightTile keys, float* scores);
  void open_mask();
  void set_mask();
  void rewrite_self(float* scores) const;

  const Call& call_;
  Index item_ = 0, head_ = 0, query_tile_ = 0, rows_ = 0;
  Buffer<float> queries_;         // strips
  Buffer<Bf16> left_;             // the queries for pair products, as they are
  Buffer<float> narrow_factors_;  // [64], for pair products: what queries_ has in it already
  bool plain_ = false;
  Buffer<double> factors_;  // [64]
  Buffer<float> dense_;     // [64][64]
  TileMask mask_;
  Buffer<std::uint64_t> open_mask_;  // [64], a mask that pairs are taken from
  Buffer<std::uint64_t> self_;       // [64], the pairs of a token with itself
  bool any_self_ = false;
  TableBand band_;  // q · relative key
};

}  // namespace rapt
