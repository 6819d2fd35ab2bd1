#pragma once

#include "attention/gradient_tile.h"
#include "attention/pair_gradients.h"
#include "attention/relative_band.h"
#include "attention/shared_sums.h"
#include "attention/visit_cursor.h"

namespace rapt {

/// One task's share of the gradients of the score's tables; query heads of a group side by side.
struct ScoreGradients {
  explicit ScoreGradients(const Call& call);
  Buffer<double> slopes;  // [group]
  Buffer<double> kerple;  // [group][amplitude, rate]
  Buffer<double> table;   // [group][buckets]
};

/// Backward of a few neighbouring key tiles of one key head: the tiles stay in the second cache
/// while all queries that see them pass by. Five products a visit: S, dP, dV, dK, dQ.
class KeyGroupWorker {
 public:
  static constexpr Index tiles = 4;

  KeyGroupWorker(const Call& call, const BackwardInput& input, QuerySums& sums);
  void run(Index item, Index kv_head, Index key_group, const GradientViews& gradients,
           ScoreGradients& score);
  /// What the task that ran last gives to the tables of relative keys and values.
  const RelativeGradient& relative_keys() const { return relative_keys_; }
  const RelativeGradient& relative_values() const { return relative_values_; }

 private:
  /// One key tile of the group.
  struct Tile {
    Buffer<float> key_panels, key_rows, value_panels;
    FlushedSums dkeys, dvalues;
    bool keys_finite = true;
  };

  void take_keys(Index item, Index kv_head, Index key_group);
  void expect(Index item, Index head, Index query_tile, Index key_tile) const;
  void expect_keys(Index i, const GradientViews& gradients) const;
  void take_queries(Index item, Index head, Index query_tile);
  void visit_queries(Index item, Index head, Index query_tile, Index key_group,
                     const GradientViews& gradients, ScoreGradients& score);
  void visit(Index i, std::int32_t mask_id, Index query_tile, Index head, ScoreGradients& score);
  void products(Tile& key_tile);
  RightTile keys_of(Index i) const;
  RightTile values_of(Index i) const;
  void write_pairs(Index i, Index item, Index kv_head, const GradientViews& gradients);
  void bias_gradients(Index query_tile, Index j, Index head, ScoreGradients& score);
  void relative_gradients(Index distance);
  void finish_relative_gradients();
  RelativeBandGradient::Queries key_band_queries();
  RelativeBandGradient::Queries value_band_queries();
  void flush_relative();
  void flush(Index i);
  struct QueryPlace {
    Index item, head, query_tile;
  };
  /// A sum in two parts; the first may be null.
  struct SplitSums {
    const double* wide;
    const float* rest;
  };
  void write_queries(const QueryPlace& place, const SplitSums& sums, const AnyMutableView& dq);
  void deliver_waiting(const AnyMutableView& dq);
  void write(Index item, Index kv_head, const GradientViews& gradients);

  const Call& call_;
  const BackwardInput& input_;
  QuerySums& sums_;
  GradientScoring scoring_;
  PairGradients pairs_;  // instead of the tiles below where the call multiplies in bf16
  Index width_, value_width_;
  Index first_ = 0, count_ = 0;  // key tiles of the group
  Tile tiles_[tiles];
  Index visits_[tiles] = {};    // of each key tile, so far
  VisitCursor cursors_[tiles];  // over the query tiles that visit each key tile
  Buffer<float> query_rows_, dout_rows_, dqueries_;
  bool queries_finite_ = true, douts_finite_ = true;
  std::vector<Index> waiting_;  // query tiles whose gradients are complete, if tokens have an order
  std::vector<float> waiting_numbers_;  // [waiting][64][dim]
  RelativeBandGradient key_band_, value_band_;
  RelativeGradient relative_keys_, relative_values_;
};

}  // namespace rapt
