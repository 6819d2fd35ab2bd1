#pragma once

#include "attention/backward/key_gradients.h"
#include "attention/backward/shared_sums.h"
#include "attention/plan/visit_cursor.h"
#include "attention/score/relative_gradient.h"
#include "base/indexed_vector.h"

namespace rapt::detail {

/// One task's share of the gradients of the score's tables; query heads of a group side by side.
struct ScoreGradients {
  explicit ScoreGradients(const Call& call);
  Buffer<double> slopes;  // [group]
  Buffer<double> kerple;  // [group][amplitude, rate]
  Buffer<double> table;   // [group][buckets]
};

/// Backward of a few neighbouring key tiles of one key head: the tiles stay in L2 while all queries
/// that see them pass by. Five products a visit: S, dP, dV, dK, dQ, of numbers of type T.
///
/// A key tile is packed at its first visit, and its gradients are written after the last: where
/// queries see few tiles, few are in the cache.
template <class T>
class KeyGroupWorker {
 public:
  /// Key tiles of a group. Query tiles at its end are packed for two groups, so longer ones pack
  /// less, where queries see so few tiles that none of their sums gets longer.
  static constexpr Index max_tiles = 16;
  static Index group_tiles(const Call& call);

  KeyGroupWorker(const Call& call, const BackwardInput& input, QuerySums& sums);
  void run(Index item, Index kv_head, Index key_group, const GradientViews& gradients,
           ScoreGradients& score);
  /// What the task that ran last gives to the tables of relative keys and values.
  const RelativeGradient& relative_keys() const { return relative_keys_; }
  const RelativeGradient& relative_values() const { return relative_values_; }

 private:
  void begin(Index key_group);
  void visit_members(Index item, Index kv_head, Index key_group, const GradientViews& gradients,
                     ScoreGradients& score);
  void load_keys(Index i, Index item, Index kv_head);
  void prefetch_queries(Index item, Index head, Index query_tile) const;
  void prefetch_keys(Index i, Index item, Index kv_head) const;
  void prefetch_key_results(Index i, const GradientViews& gradients) const;
  void load_queries(Index item, Index head, Index query_tile);
  void visit_queries(Index item, Index head, Index query_tile, Index key_group,
                     const GradientViews& gradients, ScoreGradients& score);
  void visit(Index i, std::int32_t mask_id, Index query_tile, Index head, ScoreGradients& score);
  void visit_in_steps(Index i, std::int32_t mask_id, Index query_tile, Index head,
                      ScoreGradients& score);
  void bias_gradients(Index query_tile, Index j, Index head, ScoreGradients& score);
  // Tables of relative positions are f32, and so is T then.
  void relative_gradients(Index distance);
  void finish_relative_gradients();
  RelativeBandGradient::Queries key_band_queries();
  RelativeBandGradient::Queries value_band_queries();
  void flush_relative();
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
  GradientTile<T> tile_;
  Index width_;
  Index tiles_;  // of a group
  KeyGradients<T> keys_;
  bool alone_;                      // no other thread adds to tokens
  Index first_ = 0, count_ = 0;     // key tiles of the group
  Index written_ = 0;               // of them, so far
  Index visits_[max_tiles] = {};    // of each key tile, so far
  VisitCursor cursors_[max_tiles];  // over the query tiles that visit each key tile
  Buffer<float> dqueries_;
  std::vector<Index> waiting_;  // query tiles whose gradients are complete, if tokens have an order
  IndexedVector<float> waiting_numbers_;  // [waiting][64][dim]
  RelativeBandGradient key_band_, value_band_;
  RelativeGradient relative_keys_, relative_values_;
};

}  // namespace rapt::detail
