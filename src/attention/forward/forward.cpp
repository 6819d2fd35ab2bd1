#include "attention/forward/forward.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "attention/forward/nonfinite_products.h"
#include "attention/forward/packed_keys.h"
#include "attention/forward/row_result.h"
#include "attention/plan/visit_cursor.h"
#include "attention/score/table_band.h"
#include "attention/score/tile_logits.h"
#include "attention/stats.h"

namespace rapt {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

/// Key tiles between two flushes into f64: at most sixteen partial sums, each of 64 keys, in one
/// f32; half a percent of the time. Counted from the first key of all, not of the tile's visits: so
/// a query has the same bits alone, in a chunk or in a whole prompt.
constexpr int flush_interval_log2 = 4;
/// Beside probabilities of eight bits twice as many are as good as exact.
constexpr int pair_flush_interval_log2 = 5;

/// A tile of queries on its way past the keys.
class QueryTile {
 public:
  explicit QueryTile(const Call& call)
      : call_(call),
        scoring_(call),
        relative_values_(call.relative_values.get(), call.kernels),
        width_(call.padded(call.value_dim)),
        flush_interval_log2_(call.pairs == nullptr ? flush_interval_log2
                                                   : pair_flush_interval_log2),
        late_factor_(call.pairs == nullptr ? 1 : call.rule.kept_factor()),
        probabilities_(call.pairs == nullptr ? 0 : tile * tile),
        reference_(tile),
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
    scoring_.take_queries(item, head, query_tile);
    std::fill(reference_.begin(), reference_.end(), minus_infinity);
    std::fill(lane_sums_.begin(), lane_sums_.end(), 0.0f);
    std::fill(out_.begin(), out_.end(), 0.0f);
    state_ = {reference_.data(),
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

  /// One visit: S = Q K', P and the running softmax, O += P V. `scores` is room for a tile.
  void visit(const PackedTile& packed, Index key_tile, std::int32_t mask_id, float* scores) {
    const Index stretch = key_tile >> flush_interval_log2_;
    if (stretch != stretch_) {
      if (saw_key_ != 0) call_.kernels.flush(state_, scoring_.rows());
      stretch_ = stretch;
    }
    if (call_.pairs == nullptr) {
      absorb(packed, key_tile, mask_id, scores);
    } else {
      absorb_pairs(packed, key_tile, mask_id, scores);
    }
  }

  void finish(const ForwardOutput& output) {
    for (Index r = 0; r < scoring_.rows(); ++r) finish(r, output);
  }

 private:
  void absorb(const PackedTile& packed, Index key_tile, std::int32_t mask_id, float* scores) {
    const Kernels& kernels = call_.kernels;
    const Index rows = scoring_.rows();
    scoring_.logits(packed.keys, key_tile, mask_id, scores);
    const TileMask& mask = scoring_.mask();
    saw_key_ |= mask.rows_that_see();
    if (call_.how.stats) {
      kernels.absorb_stats(scores, rows, mask.clips(), mask.words(), state_,
                           call_.distance(query_tile_, key_tile));
      if (key_tile == 0) note_first_key(mask.clips(), scores);
    } else {
      kernels.absorb(scores, rows, mask.clips(), mask.words(), state_);
    }
    if (call_.rule.has_dropout()) {
      kernels.drop(scores, rows,
                   call_.rule.drop_tile(item_ * call_.heads + head_, query_tile_, key_tile));
    }
    gather(kernels, scores, {packed.values, width_, packed.finite}, mask, rows, out_.data());
    relative_values_.add(scores, mask, rows, call_.distance(query_tile_, key_tile), out_.data());
  }

  void absorb_pairs(const PackedTile& packed, Index key_tile, std::int32_t mask_id, float* scores) {
    const bool alone = scoring_.is_plain() && !call_.rule.has_dropout();
    if (alone) {
      scoring_.take_mask(key_tile, mask_id);
      if (packed.finite || scoring_.mask().whole()) return visit_alone(packed, scores);
    }
    absorb_in_steps(packed, key_tile, mask_id, scores);
  }

  /// Nothing but products and softmax: the kernels do it in one go.
  void visit_alone(const PackedTile& packed, float* scores) {
    const TileMask& mask = scoring_.mask();
    saw_key_ |= mask.rows_that_see();
    call_.pairs->visit({.queries = scoring_.left(),
                        .depth = call_.pair_depth(call_.dim),
                        .keys = packed.keys.pairs,
                        .values = packed.value_pairs,
                        .rows = scoring_.rows(),
                        .masks = mask.words(),
                        .factors = scoring_.narrow_factors(),
                        .scores = scores,
                        .probabilities = probabilities_.data()},
                       state_);
  }

  void absorb_in_steps(const PackedTile& packed, Index key_tile, std::int32_t mask_id,
                       float* scores) {
    const PairKernels& pairs = *call_.pairs;
    const Index rows = scoring_.rows();
    const bool plain = scoring_.is_plain();
    if (plain) {
      scoring_.take_mask(key_tile, mask_id);
      scoring_.products(packed.keys, scores);
    } else {
      scoring_.logits(packed.keys, key_tile, mask_id, scores);
    }
    const TileMask& mask = scoring_.mask();
    saw_key_ |= mask.rows_that_see();
    pairs.absorb(scores, rows, mask.clips(), mask.words(),
                 plain ? scoring_.narrow_factors() : nullptr, state_, probabilities_.data());
    if (call_.rule.has_dropout()) {
      // What is kept gets its factor at the end: here it would be rounded a second time.
      std::fill(scores, scores + rows * tile, 1.0f);
      call_.kernels.drop(scores, rows,
                         call_.rule.drop_tile(item_ * call_.heads + head_, query_tile_, key_tile));
      pairs.erase(scores, rows, probabilities_.data());
    }
    gather(pairs, probabilities_.data(), {packed.value_pairs, width_, packed.finite}, mask, rows,
           out_.data());
  }

  /// log2 of key 0's unnormalised probability, while the reference it is measured from is known.
  void note_first_key(const Clip* clips, const float* scores) {
    for (Index r = 0; r < scoring_.rows(); ++r) {
      const bool there =
          clips == nullptr || (clips[r / strip].begin == 0 && clips[r / strip].end > 0);
      first_key_[r] = there ? std::log2(static_cast<double>(scores[r * tile])) +
                                  static_cast<double>(reference_[r])
                            : -std::numeric_limits<double>::infinity();
    }
  }

  bool saw_key(Index r) const { return (saw_key_ >> r & 1) != 0; }

  void finish(Index r, const ForwardOutput& output) {
    const double sum = (state_.wide_used ? sums_[r] : 0) +
                       sum_of_lanes(lane_sums_.data() + r * max_lanes, call_.kernels.lanes);
    const RowPlace place{item_, head_, query_tile_ * tile + r};
    const RowSum row{static_cast<double>(reference_[r]), sum, saw_key(r)};
    const Denominator all =
        write_row_result(call_, place, row, output, [&](double factor, float* out) {
          call_.kernels.finish(state_, r, factor * late_factor_, call_.value_dim, out);
        });
    if (output.stats != nullptr) {
      const Index at = output.first_row + call_.row(item_, head_, place.query);
      write_stats(call_, state_, {r, head_, at, first_key_[r], all.max, all.sum}, *output.stats);
    }
  }

  const Call& call_;
  Scoring scoring_;
  TableGather relative_values_;
  Index width_;
  Index item_ = 0, head_ = 0, query_tile_ = 0;
  SoftmaxTile state_{};
  int flush_interval_log2_;
  double late_factor_;  // of everything that dropout kept
  Index stretch_ = 0;
  std::uint64_t saw_key_ = 0;   // a bit per row
  Buffer<Bf16> probabilities_;  // [64][64], where pairs multiply
  Buffer<float> reference_, lane_sums_;
  Buffer<double> sums_;
  Buffer<float> out_;
  Buffer<double> wide_;
  Buffer<float> shift_, lane_stats_;
  Buffer<double> stats_, first_key_;
};

/// One thread's share: a few neighbouring query tiles side by side, so that a tile of keys and
/// values is used by all of them while it is in the second cache.
class ForwardWorker {
 public:
  ForwardWorker(const Call& call, KeySource& keys)
      : call_(call),
        keys_(keys),
        group_(forward_group(call)),
        room_(together * packed_room(call)),
        scores_(tile * tile) {
    for (Index i = 0; i < std::min(group_, call.query_tiles()); ++i) {
      queries_.push_back(std::make_unique<QueryTile>(call));
    }
  }

  void run(Index item, Index head, Index group, const ForwardOutput& output) {
    const Index first = group * group_;
    const Index count = std::min(group_, call_.query_tiles() - first);
    VisitCursor storage[most_forward_group], behind[most_forward_group];
    const std::span<VisitCursor> cursors(storage, static_cast<std::size_t>(count));
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
        float* room = room_.data() + taken * packed_room(call_);
        some[taken++] = {j, keys_.get(item, call_.kv_head(head), j, room)};
        keys_.expect(item, call_.kv_head(head), j + 1);
        if (soon < std::min(first + 2 * group_, call_.query_tiles()))
          expect_rows(call_.query_rows(call_.q, item, head, soon++), call_.dim);
        if (output.rounds != nullptr && due < first + count) output.rounds->expect(due++);
      }
      for (Index i = 0; i < count; ++i)
        visit(i, behind[i], {some, static_cast<std::size_t>(taken)});
    }
    if (output.rounds != nullptr) output.rounds->enter(group);
    for (Index i = 0; i < count; ++i) query(i).finish(output);
    if (output.rounds != nullptr) output.rounds->leave();
  }

 private:
  /// Key tiles that a tile of queries visits one after the other: its sums then stay in the first
  /// cache, and the keys in the second.
  static constexpr Index together = 4;
  struct KeyTile {
    Index number;
    PackedTile packed;
  };

  QueryTile& query(Index i) { return *queries_[static_cast<std::size_t>(i)]; }

  void visit(Index i, VisitCursor& cursor, std::span<const KeyTile> keys) {
    for (const KeyTile& key_tile : keys) {
      if (cursor.next(key_tile.number) == key_tile.number)
        query(i).visit(key_tile.packed, key_tile.number, cursor.mask(), scores_.data());
    }
  }

  const Call& call_;
  KeySource& keys_;
  Index group_;
  Buffer<float> room_;
  std::vector<std::unique_ptr<QueryTile>> queries_;
  Buffer<float> scores_;
};

/// Groups of query tiles by falling number of visits, so that the last task to end is a short one;
/// as they are where results are added in that order.
std::vector<Index> order_of_groups(const Plan& plan, Index group, bool ascending) {
  std::vector<Index> cost(static_cast<std::size_t>(divide_up(plan.query_tiles(), group)));
  std::vector<Index> order(cost.size());
  std::iota(order.begin(), order.end(), Index{0});
  if (ascending) return order;
  for (Index t = 0; t < plan.query_tiles(); ++t) {
    for (const Visit& visit : plan.visits(t))
      cost[static_cast<std::size_t>(t / group)] += visit.count;
  }
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) {
    return cost[static_cast<std::size_t>(a)] > cost[static_cast<std::size_t>(b)];
  });
  return order;
}

}  // namespace

void run_forward(const Call& call, KeySource& keys, const ForwardOutput& output) {
  if (call.rows() == 0) return;
  Crew<ForwardWorker> crew(call.context);
  const std::vector<Index> order =
      order_of_groups(*call.plan, forward_group(call), output.rounds != nullptr);
  // One head after the other, so that neighbouring tiles find their keys in the cache; longest
  // first inside a head, so that the last tasks are short ones.
  const Index groups = static_cast<Index>(order.size());
  for_each_task(call.context, call.batch * call.heads * groups, [&](Index task, Index worker) {
    const Index owner = task / groups;
    const PairSession session(call.pairs);
    try {
      crew.get(worker, call, keys)
          .run(owner / call.heads, owner % call.heads,
               order[static_cast<std::size_t>(task % groups)], output);
    } catch (...) {
      if (output.rounds != nullptr) output.rounds->give_up(std::current_exception());
      throw;
    }
    keys.leave(owner / call.heads, call.kv_head(owner % call.heads));
  });
}

}  // namespace rapt
