#pragma once

#include <memory>
#include <vector>

#include "attention/backward/flushed_sums.h"
#include "attention/backward/gradient_tile.h"
#include "attention/forward/nonfinite_products.h"
#include "base/indexed_vector.h"

namespace rapt::detail {

/// A key tile of one head.
struct KeyPlace {
  Index item, kv_head, key_tile;
};

/// Where the gradient of a tile is written: rows `first` and after of one head.
struct GradientRows {
  AnyMutableView to;
  Index item, head, first, count;
};
/// `here` is the gradient of the call's own tokens, `received` of the part that of the others.
GradientRows key_gradient_rows(const Call& call, const KeyPlace& place, const AnyMutableView& here,
                               const AnyMutableView* CallPart::*received);

/// A query tile of one head.
struct QueryPlace {
  Index item, head, query_tile;
};
GradientRows query_gradient_rows(const Call& call, const QueryPlace& place,
                                 const AnyMutableView& here);

/// Backward of a few key tiles whose operands are multiplied as numbers of type T: packed keys,
/// values and queries, and the gradients of keys and values.
template <class T>
class KeyGradients;

template <>
class KeyGradients<float> {
 public:
  /// Visits of a key tile between two flushes into f64: at most 256 terms in one f32 sum.
  static constexpr Index flush_interval = 4;

  KeyGradients(const Call& call, Index key_tiles);

  /// Packs key tile i, each key times its factor (null: 1), and clears its gradients.
  void load_keys(Index i, const InputRows& keys, const InputRows& values, const double* factors);
  /// Packs the queries that `from` has loaded.
  void load_queries(const GradientTile<float>& from, const InputRows& queries,
                    const InputRows& douts, Index first_query);

  /// Panels.
  const float* keys(Index i) const { return tiles_[i]->key_panels.data(); }
  const float* values(Index i) const { return tiles_[i]->value_panels.data(); }

  /// dV += P' dO, dK += dS' Q of key tile i, and dQ += dS K.
  void products(Index i, GradientTile<float>& from, float* dqueries);
  /// Everything from products to gradients in one kernel; false: not possible.
  bool visit_fused(Index, GradientTile<float>&, Index, std::int32_t, float*) { return false; }
  void flush(Index i);
  /// Writes the gradients of key tile i and releases its memory.
  void write(Index i, const KeyPlace& place, const GradientViews& gradients);

  RightRows<float> queries() const { return {query_rows_.data(), width_, queries_finite_}; }
  RightRows<float> douts() const { return {dout_rows_.data(), value_width_, douts_finite_}; }

 private:
  struct Tile {
    explicit Tile(const Call& call);
    Buffer<float> key_panels, key_rows, value_panels;
    FlushedSums dkeys, dvalues;  // [64][width]
    bool keys_finite = true;
  };

  const Call& call_;
  Index width_, value_width_;
  IndexedVector<std::unique_ptr<Tile>>
      tiles_;  // null before they are loaded, after they are written
  std::vector<std::unique_ptr<Tile>> idle_;
  Buffer<float> query_rows_, dout_rows_;
  bool queries_finite_ = true, douts_finite_ = true;
};

/// The gradients of keys and values are transposed, as the products give them without moving a
/// number across lanes.
template <>
class KeyGradients<Bf16> {
 public:
  /// 1,024 terms are off by 2^-14 at most, and each of them is rounded to bf16.
  static constexpr Index flush_interval = 16;

  KeyGradients(const Call& call, Index key_tiles);

  void load_keys(Index i, const InputRows& keys, const InputRows& values, const double* factors);
  void load_queries(const GradientTile<Bf16>& from, const InputRows& queries,
                    const InputRows& douts, Index first_query);

  const Bf16* keys(Index i) const { return tiles_[i].key_panels.data(); }
  const Bf16* values(Index i) const { return tiles_[i].value_panels.data(); }

  void products(Index i, GradientTile<Bf16>& from, float* dqueries);
  bool visit_fused(Index i, GradientTile<Bf16>& from, Index key_tile, std::int32_t mask_id,
                   float* dqueries);
  void flush(Index i);
  void write(Index i, const KeyPlace& place, const GradientViews& gradients);

 private:
  struct Tile {
    Buffer<Bf16> key_panels, key_rows, value_panels;
    FlushedSums dkeys, dvalues;  // [width][64]
    bool keys_finite = true;
  };
  /// Whether no number that is not finite could reach the gradient of a hidden key.
  bool is_safe(Index i, const TileMask& mask) const {
    return mask.whole() || (tiles_[i].keys_finite && queries_finite_ && douts_finite_);
  }
  const float* query_scales() const;  // [64], null: they are the same
  const float* rows_of_sums(const FlushedSums& sums, double factor);

  const Call& call_;
  const TileKernels<Bf16>& kernels_;
  Index depth_, value_depth_, width_, value_width_;
  IndexedVector<Tile> tiles_;
  Buffer<Bf16> query_columns_, dout_columns_;  // [width][64]
  bool queries_finite_ = true, douts_finite_ = true;
  Index rows_ = 0;
  Buffer<float> query_scales_;  // [64] of q·k where it differs from query to query
  Buffer<Bf16> interleaved_, interleaved_dlogits_, dlogit_strips_;  // a tile of P or dS
  Buffer<float> columns_, sums_;
};

}  // namespace rapt::detail
