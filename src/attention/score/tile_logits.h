#pragma once

#include "attention/call.h"
#include "attention/plan/tile_mask.h"
#include "attention/score/table_band.h"

namespace rapt::detail {

/// Makes the logits of one tile after the other for a tile of queries: product, relative keys,
/// soft-cap, biases. Forward and backward share it, so they see the same bits. Products multiply
/// numbers of type T.
template <class T>
class TileLogits {
 public:
  explicit TileLogits(const Call& call);

  /// Packs the queries of a tile; f32 times their factors.
  void load_queries(Index item, Index head, Index query_tile);

  /// Logits [64][64] in units of log2 of the keys that mask() then shows; numbers outside its clips
  /// stay as they were. `keys` are panels. `tanh_out` keeps what the soft-cap needs in backward, if
  /// not null.
  void logits(const T* keys, Index key_tile, std::int32_t mask_id, float* scores,
              float* tanh_out = nullptr);
  const TileMask& mask() const { return mask_; }
  void load_mask(Index key_tile, std::int32_t mask_id);
  /// Zeros where a token met itself and its logit was rewritten.
  void clear_self(float* dlogits) const;

  /// Whether logits are products times positive factors and nothing more, so that bf16 kernels can
  /// go from products to probabilities by themselves, with the mask and what follows.
  bool is_plain() const { return plain_; }
  /// scores = queries · keys inside the mask, without factors.
  void products(const T* keys, float* scores);
  const T* queries() const { return queries_.data(); }
  const float* f32_factors() const { return f32_factors_.data(); }

  Index rows() const { return rows_; }
  Index row_strips() const { return divide_up(rows_, strip); }
  Index depth() const { return depth_; }
  const double* factors() const { return factors_.data(); }

 private:
  void pack_queries(const InputRows& rows);
  void multiply(const T* keys, float* scores);
  void copy_mask();
  void set_mask();
  void rewrite_self(float* scores) const;

  const Call& call_;
  const TileKernels<T>& tiles_;
  Index depth_;  // of packed queries
  Index item_ = 0, head_ = 0, query_tile_ = 0, rows_ = 0;
  Buffer<T> queries_;          // strips
  Buffer<double> factors_;     // [64] of q·k
  Buffer<float> f32_factors_;  // [64] the same for bf16, whose queries are packed as they are
  bool plain_ = false;
  Buffer<float> dense_;  // [64][64]
  TileMask mask_;
  Buffer<std::uint64_t> own_mask_;  // [64] a copy that keys are removed from
  Buffer<std::uint64_t> self_;      // [64] where a token meets itself
  bool any_self_ = false;
  TableBand band_;  // q · relative key
};

}  // namespace rapt::detail
