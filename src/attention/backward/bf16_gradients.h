#pragma once

#include "attention/backward/flushed_sums.h"
#include "attention/forward/nonfinite_products.h"

namespace rapt {

/// Backward of a few key tiles in bf16: operands in the layouts of bf16_kernels.h, and the
/// gradients of keys and values, transposed, because that is how the products give them without
/// moving a number across lanes.
class PairGradients {
 public:
  /// Does nothing without pairs in the call.
  PairGradients(const Call& call, Index key_tiles);

  void take_keys(Index i, const InputRows& keys, const InputRows& values);
  void take_queries(const InputRows& queries, const InputRows& douts, Index first_query);

  RightTile keys(Index i) const { return {.pairs = tiles_[at(i)].key_pairs.data()}; }
  RightTile values(Index i) const { return {.pairs = tiles_[at(i)].value_pairs.data()}; }

  /// dV += P' dO, dK += dS' Q of key tile i, and dQ += dS K.
  void products(Index i, const float* probabilities, const float* dlogits, const TileMask& mask,
                float* dqueries);
  /// The same from the queries' side of a visit alone; only if can_visit.
  void visit(Index i, PairGradientVisit visit, float* dqueries);
  /// Whether no number that is not finite could reach a hidden pair's gradient.
  bool can_visit(Index i, const TileMask& mask) const {
    return mask.whole() || (tiles_[at(i)].keys_finite && queries_finite_ && douts_finite_);
  }
  void flush(Index i);
  /// The gradients of a tile as f32 rows; valid until the next call.
  const float* dkeys(Index i);
  const float* dvalues(Index i);

 private:
  struct Tile {
    Buffer<Bf16> key_pairs, key_rows, value_pairs;
    FlushedSums dkeys, dvalues;  // [width][64]
    bool keys_finite = true;
  };
  static std::size_t at(Index i) { return static_cast<std::size_t>(i); }
  const float* rows_of_sums(const FlushedSums& sums, double factor);

  const Call& call_;
  Index width_, value_width_;
  std::vector<Tile> tiles_;
  Buffer<Bf16> query_columns_, dout_columns_;  // [width][64]
  bool queries_finite_ = true, douts_finite_ = true;
  Index rows_ = 0;
  const float* query_scales() const;  // [64], null: they are the same
  Buffer<float> query_scales_;        // [64] of q·k where it differs from query to query
  Buffer<Bf16> natural_, other_natural_, left_;  // a tile of P or dS
  Buffer<float> columns_, sums_;
};

}  // namespace rapt
