#include "attention/forward/forward.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <type_traits>

#include "attention/finished_row.h"
#include "attention/forward/nonfinite_products.h"
#include "attention/forward/row_result.h"
#include "attention/plan/visit_cursor.h"
#include "attention/score/table_band.h"
#include "attention/score/tile_logits.h"
#include "base/indexed_vector.h"
#include "base/numerics.h"

namespace rapt::detail {
namespace {

/// Key tiles between two flushes into f64: at most sixteen partial sums, each of 64 keys, in one
/// f32; half a percent of the time. Counted from the first key of all, not of the tile's visits: so
/// a query has the same bits alone, in a chunk or in a whole prompt. Next to the rounding of bf16
/// probabilities, twice as many are as good as exact.
template <class T>
constexpr int flush_interval_log2 = std::is_same_v<T, Bf16> ? 5 : 4;

/// The online softmax of a tile of queries over the keys it visits.
template <class T>
class QueryTile {
 public:
  explicit QueryTile(const Call& call)
      : call_(call),
        tiles_(tile_kernels<T>(call.kernels)),
        logits_(call),
        relative_values_(call.relative_values.get(), call.kernels),
        width_(packed_width<T>(call.kernels, call.value_dim)),
        late_factor_(is_bf16 ? call.score_rule.kept_factor() : 1),
        probabilities_(is_bf16 ? tile * tile : 0),
        running_max_(tile),
        lane_sums_(tile * max_lanes),
        sums_(tile),
        out_(tile * width_),
        wide_(tile * width_) {
    std::fill(probabilities_.begin(), probabilities_.end(), Bf16());
    if (!call.how.stats) return;
    shift_ = Buffer<float>(tile);
    lane_stats_ = Buffer<float>(stat_count * tile * max_lanes);
    stats_ = Buffer<double>(stat_count * tile);
    first_key_ = Buffer<double>(tile);
  }

  void begin(Index item, Index head, Index query_tile) {
    item_ = item;
    head_ = head;
    query_tile_ = query_tile;
    stretch_ = 0;
    saw_key_ = 0;
    logits_.load_queries(item, head, query_tile);
    std::fill(running_max_.begin(), running_max_.end(), minus_infinity);
    std::fill(lane_sums_.begin(), lane_sums_.end(), 0.0f);
    std::fill(out_.begin(), out_.end(), 0.0f);
    state_ = {running_max_.data(),
              lane_sums_.data(),
              sums_.data(),
              out_.data(),
              wide_.data(),
              width_,
              false,
              shift_.data(),
              lane_stats_.data(),
              stats_.data()};
    if (!call_.how.stats) return;
    std::fill(shift_.begin(), shift_.end(), 0.0f);
    std::fill(lane_stats_.begin(), lane_stats_.end(), 0.0f);
    std::fill(stats_.begin(), stats_.end(), 0.0);
    std::fill(first_key_.begin(), first_key_.end(), -std::numeric_limits<double>::infinity());
  }

  /// One visit: S = Q K', P and the online softmax, O += P V. `scores` is scratch for a tile.
  void visit(const PackedTile<T>& packed, Index key_tile, std::int32_t mask_id, float* scores) {
    const Index stretch = call_.whole_key_tile(key_tile) >> flush_interval_log2<T>;
    if (stretch != stretch_) {
      if (saw_key_ != 0) call_.kernels.score.flush(state_, logits_.rows());
      stretch_ = stretch;
    }
    if constexpr (is_bf16) {
      attend_bf16(packed, key_tile, mask_id, scores);
    } else {
      attend_f32(packed, key_tile, mask_id, scores);
    }
  }

  void finish(const ForwardOutput& output) {
    for (Index r = 0; r < logits_.rows(); ++r) finish(r, output);
  }

 private:
  static constexpr bool is_bf16 = std::is_same_v<T, Bf16>;

  void attend_f32(const PackedTile<T>& packed, Index key_tile, std::int32_t mask_id,
                  float* scores) {
    const Index rows = logits_.rows();
    logits_.logits(packed.keys, key_tile, mask_id, scores);
    const TileMask& mask = logits_.mask();
    saw_key_ |= mask.rows_that_see();
    if (call_.how.stats) {
      tiles_.online_softmax_stats(scores, rows, mask.clips(), mask.words(), state_,
                                  call_.distance(query_tile_, key_tile));
      if (call_.whole_key_tile(key_tile) == 0) note_first_key(mask.clips(), scores);
    } else {
      tiles_.online_softmax(scores, rows, mask.clips(), mask.words(), state_);
    }
    if (call_.score_rule.has_dropout())
      call_.kernels.score.dropout(scores, rows, dropout_tile(key_tile));
    accumulate_values(tiles_, scores, {packed.values, width_, packed.finite}, mask, rows,
                      out_.data());
    relative_values_.add(scores, mask, rows, call_.distance(query_tile_, key_tile), out_.data());
  }

  void attend_bf16(const PackedTile<T>& packed, Index key_tile, std::int32_t mask_id,
                   float* scores) {
    if (logits_.is_plain() && !call_.score_rule.has_dropout()) {
      logits_.load_mask(key_tile, mask_id);
      if (packed.finite || logits_.mask().whole()) return attend_fused(packed, scores);
    }
    attend_in_steps(packed, key_tile, mask_id, scores);
  }

  /// Products and softmax and nothing more: one kernel does both.
  void attend_fused(const PackedTile<T>& packed, float* scores) {
    const TileMask& mask = logits_.mask();
    saw_key_ |= mask.rows_that_see();
    tiles_.forward({.queries = logits_.queries(),
                    .depth = logits_.depth(),
                    .keys = packed.keys,
                    .values = packed.values,
                    .rows = logits_.rows(),
                    .masks = mask.words(),
                    .factors = logits_.f32_factors(),
                    .scores = scores,
                    .probabilities = probabilities_.data()},
                   state_);
  }

  void attend_in_steps(const PackedTile<T>& packed, Index key_tile, std::int32_t mask_id,
                       float* scores) {
    const Index rows = logits_.rows();
    const bool plain = logits_.is_plain();
    if (plain) {
      logits_.load_mask(key_tile, mask_id);
      logits_.products(packed.keys, scores);
    } else {
      logits_.logits(packed.keys, key_tile, mask_id, scores);
    }
    const TileMask& mask = logits_.mask();
    saw_key_ |= mask.rows_that_see();
    tiles_.online_softmax(scores, rows, mask.clips(), mask.words(),
                          plain ? logits_.f32_factors() : nullptr, state_, probabilities_.data());
    if (call_.score_rule.has_dropout()) {
      // What is kept gets its factor at the end: here it would be rounded a second time.
      std::fill(scores, scores + rows * tile, 1.0f);
      call_.kernels.score.dropout(scores, rows, dropout_tile(key_tile));
      tiles_.zero_dropped(scores, rows, probabilities_.data());
    }
    accumulate_values(tiles_, probabilities_.data(), {packed.values, width_, packed.finite}, mask,
                      rows, out_.data());
  }

  DropoutTile dropout_tile(Index key_tile) const {
    return call_.score_rule.dropout_tile(item_ * call_.heads + head_,
                                         call_.whole_query_tile(query_tile_),
                                         call_.whole_key_tile(key_tile));
  }

  /// log2 of key 0's unnormalised probability, while the running max it is relative to is known.
  void note_first_key(const Clip* clips, const float* scores) {
    for (Index r = 0; r < logits_.rows(); ++r) {
      const bool there =
          clips == nullptr || (clips[r / strip].begin == 0 && clips[r / strip].end > 0);
      first_key_[r] = there ? std::log2(static_cast<double>(scores[r * tile])) +
                                  static_cast<double>(running_max_[r])
                            : -std::numeric_limits<double>::infinity();
    }
  }

  bool saw_key(Index r) const { return (saw_key_ >> r & 1) != 0; }

  void finish(Index r, const ForwardOutput& output) {
    const double sum = (state_.wide_used ? sums_[r] : 0) +
                       sum_of_lanes(lane_sums_.data() + r * max_lanes, call_.kernels.lanes);
    const RowPlace place{item_, head_, query_tile_ * tile + r};
    const RowSum row{static_cast<double>(running_max_[r]), sum, saw_key(r)};
    const Denominator all =
        write_row_result(call_, place, row, output, [&](double factor, float* out) {
          call_.kernels.score.finish(state_, r, factor * late_factor_, call_.value_dim, out);
        });
    if (output.stats != nullptr) {
      const Index at = output.first_row + call_.row(item_, head_, place.query);
      write_stats(call_, state_, {r, head_, at, first_key_[r], all.max, all.sum}, *output.stats);
    }
  }

  const Call& call_;
  const TileKernels<T>& tiles_;
  TileLogits<T> logits_;
  TableAccumulator relative_values_;
  Index width_;
  Index item_ = 0, head_ = 0, query_tile_ = 0;
  SoftmaxTile state_{};
  double late_factor_;  // of everything that dropout kept
  Index stretch_ = 0;
  std::uint64_t saw_key_ = 0;   // a bit per row
  Buffer<Bf16> probabilities_;  // [64][64], of bf16
  Buffer<float> running_max_, lane_sums_;
  Buffer<double> sums_;
  Buffer<float> out_;
  Buffer<double> wide_;
  Buffer<float> shift_, lane_stats_;
  Buffer<double> stats_, first_key_;
};

/// The work of one thread: a few neighbouring query tiles together, so that all of them use a tile
/// of keys and values while it is in L2.
template <class T>
class ForwardWorker {
 public:
  ForwardWorker(const Call& call, KeySource<T>& keys)
      : call_(call),
        keys_(keys),
        group_(forward_group(call)),
        packed_size_(packed_tile_size<T>(call)),
        packed_(together * packed_size_),
        scores_(tile * tile) {
    for (Index i = 0; i < std::min(group_, call.query_tiles()); ++i) {
      queries_.push_back(std::make_unique<QueryTile<T>>(call));
    }
  }

  void run(Index item, Index head, Index group, const ForwardOutput& output) {
    const Index first = group * group_;
    const Index count = std::min(group_, call_.query_tiles() - first);
    VisitCursor storage[max_forward_group], behind[max_forward_group];
    const std::span<VisitCursor> cursors(storage, storage + count);
    for (Index i = 0; i < count; ++i) {
      storage[i] = behind[i] = VisitCursor(call_.plan->visits(first + i));
      query(i).begin(item, head, first + i);
    }
    Index soon = first + group_;  // of the queries that this worker probably takes next
    Index due = first;            // of those whose results are written at the end
    KeyTile some[together];
    Index j = next_tile(cursors, 0);
    while (j >= 0) {
      Index taken = 0;
      for (; j >= 0 && taken < together; j = next_tile(cursors, j + 1)) {
        T* scratch = packed_.data() + taken * packed_size_;
        some[taken++] = {j, keys_.get(item, call_.kv_head(head), j, scratch)};
        keys_.prefetch(item, call_.kv_head(head), j + 1);
        if (soon < std::min(first + 2 * group_, call_.query_tiles()))
          prefetch_rows(call_.query_rows(call_.q, item, head, soon++), call_.dim);
        if (output.rounds != nullptr && due < first + count) output.rounds->prefetch(due++);
      }
      for (Index i = 0; i < count; ++i) visit(i, behind[i], {some, some + taken});
    }
    if (output.rounds != nullptr) output.rounds->enter(group);
    for (Index i = 0; i < count; ++i) query(i).finish(output);
    if (output.rounds != nullptr) output.rounds->release();
  }

 private:
  /// Key tiles that a tile of queries visits one after the other: its sums then stay in L1, and the
  /// keys in L2.
  static constexpr Index together = 4;
  struct KeyTile {
    Index number;
    PackedTile<T> packed;
  };

  QueryTile<T>& query(Index i) { return *queries_[i]; }

  void visit(Index i, VisitCursor& cursor, std::span<const KeyTile> keys) {
    for (const KeyTile& key_tile : keys) {
      if (cursor.next(key_tile.number) == key_tile.number)
        query(i).visit(key_tile.packed, key_tile.number, cursor.mask(), scores_.data());
    }
  }

  const Call& call_;
  KeySource<T>& keys_;
  Index group_;
  Index packed_size_;  // of a tile of keys and values
  Buffer<T> packed_;
  IndexedVector<std::unique_ptr<QueryTile<T>>> queries_;
  Buffer<float> scores_;
};

/// Groups of query tiles by falling number of visits, so that the last task to end is a short one;
/// as they are where results are added in that order.
IndexedVector<Index> order_of_groups(const Plan& plan, Index group, bool ascending) {
  IndexedVector<Index> cost(divide_up(plan.query_tiles(), group));
  IndexedVector<Index> order(cost.size());
  std::iota(order.begin(), order.end(), Index{0});
  if (ascending) return order;
  for (Index t = 0; t < plan.query_tiles(); ++t) {
    for (const Visit& visit : plan.visits(t)) cost[t / group] += visit.count;
  }
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) { return cost[a] > cost[b]; });
  return order;
}

}  // namespace

template <class T>
void run_forward(const Call& call, KeySource<T>& keys, const ForwardOutput& output) {
  if (call.rows() == 0) return;
  Workers<ForwardWorker<T>> workers(call.context);
  const IndexedVector<Index> order =
      order_of_groups(*call.plan, forward_group(call), output.rounds != nullptr);
  // One head after the other, so that neighbouring tiles find their keys in the cache; longest
  // first inside a head, so that the last tasks are short ones.
  const Index groups = std::ssize(order);
  const HeadRange kv_heads = call.computed_heads();
  const Index tasks = kv_heads.count * call.group * groups;
  for_each_task(call.context, tasks, [&](Index task, Index worker) {
    const Index batch_head = kv_heads.first * call.group + task / groups;
    const ProductSession<T> session(call.kernels);
    try {
      workers.get(worker, call, keys)
          .run(batch_head / call.heads, batch_head % call.heads, order[task % groups], output);
    } catch (...) {
      if (output.rounds != nullptr) output.rounds->abort(std::current_exception());
      throw;
    }
    keys.release(batch_head / call.heads, call.kv_head(batch_head % call.heads));
    call.progress(worker);
  });
}

template void run_forward(const Call& call, KeySource<float>& keys, const ForwardOutput& output);
template void run_forward(const Call& call, KeySource<Bf16>& keys, const ForwardOutput& output);

}  // namespace rapt::detail
