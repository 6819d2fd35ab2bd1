#pragma once

#include "attention/backward/bf16_gradients.h"
#include "attention/backward/gradient_tile.h"
#include "attention/backward/shared_sums.h"
#include "attention/plan/visit_cursor.h"
#include "attention/score/relative_band.h"

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
///
/// A key tile is packed at its first visit, and its gradients are written after the last: where
/// queries see few tiles, few are in the cache.
class KeyGroupWorker {
 public:
  /// Key tiles of a group. Query tiles at its end are packed for two groups, so longer ones pack
  /// less, where queries see so few tiles that none of their sums gets longer.
  static constexpr Index most_tiles = 16;
  static Index group_tiles(const Call& call);

  KeyGroupWorker(const Call& call, const BackwardInput& input, QuerySums& sums);
  void run(Index item, Index kv_head, Index key_group, const GradientViews& gradients,
           ScoreGradients& score);
  /// What the task that ran last gives to the tables of relative keys and values.
  const RelativeGradient& relative_keys() const { return relative_keys_; }
  const RelativeGradient& relative_values() const { return relative_values_; }

 private:
  /// One key tile of the group.
  struct Tile {
    explicit Tile(const Call& call);
    Buffer<float> key_panels, key_rows, value_panels;
    FlushedSums dkeys, dvalues;
    bool keys_finite = true;
  };

  void begin(Index key_group);
  void visit_members(Index item, Index kv_head, Index key_group, const GradientViews& gradients,
                     ScoreGradients& score);
  void take_keys(Index i, Index item, Index kv_head);
  void expect_queries(Index item, Index head, Index query_tile) const;
  void expect_keys(Index i, Index item, Index kv_head) const;
  void expect_key_results(Index i, const GradientViews& gradients) const;
  void take_queries(Index item, Index head, Index query_tile);
  void visit_queries(Index item, Index head, Index query_tile, Index key_group,
                     const GradientViews& gradients, ScoreGradients& score);
  void visit(Index i, std::int32_t mask_id, Index query_tile, Index head, ScoreGradients& score);
  bool visit_alone(Index i, std::int32_t mask_id);
  void visit_in_steps(Index i, std::int32_t mask_id, Index query_tile, Index head,
                      ScoreGradients& score);
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
  /// Of a key tile that no other query visits.
  void write_keys(Index i, Index item, Index kv_head, const GradientViews& gradients);

  const Call& call_;
  const BackwardInput& input_;
  QuerySums& sums_;
  GradientScoring scoring_;
  PairGradients pairs_;  // instead of the tiles below where the call multiplies in bf16
  Index width_, value_width_;
  Index tiles_;                  // of a group
  bool alone_;                   // no other thread waits for its turn to add to tokens
  Index first_ = 0, count_ = 0;  // key tiles of the group
  Index written_ = 0;            // of them, so far
  std::vector<std::unique_ptr<Tile>> idle_;
  std::unique_ptr<Tile> key_tiles_[most_tiles];  // null before the first visit, after the last
  Index visits_[most_tiles] = {};                // of each key tile, so far
  VisitCursor cursors_[most_tiles];              // over the query tiles that visit each key tile
  Buffer<float> query_rows_, dout_rows_, dqueries_;
  bool queries_finite_ = true, douts_finite_ = true;
  std::vector<Index> waiting_;  // query tiles whose gradients are complete, if tokens have an order
  std::vector<float> waiting_numbers_;  // [waiting][64][dim]
  RelativeBandGradient key_band_, value_band_;
  RelativeGradient relative_keys_, relative_values_;
};

}  // namespace rapt
