#include "attention/backward/key_group_worker.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace rapt::detail {
namespace {

/// Query tiles between two flushes of relative gradients into f64.
constexpr Index relative_flush_interval = 4;

template <class T>
void clear(Buffer<T>& buffer) {
  std::fill(buffer.begin(), buffer.end(), T{0});
}

}  // namespace

ScoreGradients::ScoreGradients(const Call& call)
    : slopes(call.how.bias.alibi ? call.group : 0),
      kerple(call.how.bias.kerple ? 2 * call.group : 0),
      table(call.how.bias.table ? call.group * call.how.bias.table->values.size(0) : 0) {
  clear(slopes);
  clear(kerple);
  clear(table);
}

template <class T>
Index KeyGroupWorker<T>::group_tiles(const Call& call) {
  // Visits of a query tile in one f32 sum: at most 256 terms. Next to the rounding of bf16 512 are
  // as good, and queries are packed and summed half as often; short calls would have too few tasks.
  const Index usual = std::is_same_v<T, float> || divide_up(call.whole.keys, tile) < 32 ? 4 : 8;
  if (call.sorted_rule == nullptr) return usual;
  for (Index t = 0; t < call.query_tiles(); ++t) {
    Index visits = 0;
    for (const Visit& visit : call.plan->visits(t)) visits += visit.count;
    if (visits > usual) return usual;
  }
  return max_tiles;
}

template <class T>
KeyGroupWorker<T>::KeyGroupWorker(const Call& call, const BackwardInput& input,
                                  const KeyGroups& groups, QuerySums& sums)
    : call_(call),
      input_(input),
      groups_(groups),
      sums_(sums),
      tile_(call, input),
      width_(packed_width<T>(call.kernels, call.dim)),
      keys_(call, groups.tiles()),
      alone_(call.context.threads() == 1),
      dqueries_(tile * width_),
      key_band_(call.relative.get(), call.kernels),
      value_band_(call.relative_values.get(), call.kernels),
      relative_keys_(call.relative.get(), call.kernels),
      relative_values_(call.relative_values.get(), call.kernels) {
  clear(dqueries_);
}

template <class T>
void KeyGroupWorker<T>::begin(Index key_group) {
  first_ = groups_.begin(key_group);
  count_ = groups_.end(key_group) - first_;
  written_ = 0;
  std::fill(visits_, visits_ + count_, Index{0});
  relative_keys_.clear();
  relative_values_.clear();
}

template <class T>
void KeyGroupWorker<T>::load_keys(Index i, Index item, Index kv_head) {
  keys_.load_keys(i, call_.key_rows(call_.k, item, kv_head, first_ + i),
                  call_.key_rows(call_.v, item, kv_head, first_ + i),
                  call_.factors_of_keys(first_ + i));
}

template <class T>
void KeyGroupWorker<T>::run(Index item, Index kv_head, Index key_group,
                            const GradientViews& gradients, ScoreGradients& score) {
  begin(key_group);
  // Several tasks add to one token: in the order of the tasks.
  const bool ordered = call_.query_order != nullptr;
  if (ordered && alone_) sums_.enter_delivery(key_group);
  visit_members(item, kv_head, key_group, gradients, score);
  flush_relative();
  if (ordered && !alone_) sums_.enter_delivery(key_group);
  deliver_waiting(gradients.dq);
  while (written_ < count_) write_keys(written_++, item, kv_head, gradients);
  if (ordered) sums_.release_delivery();
}

/// Every query tile that sees a key of the group, of every head that shares the keys.
template <class T>
void KeyGroupWorker<T>::visit_members(Index item, Index kv_head, Index key_group,
                                      const GradientViews& gradients, ScoreGradients& score) {
  const bool at_once = alone_ || call_.query_order == nullptr;
  Index passed = 0;  // query tiles
  for (Index member = 0; member < call_.group; ++member) {
    const std::span<VisitCursor> cursors(cursors_, cursors_ + count_);
    for (Index i = 0; i < count_; ++i) cursors_[i] = VisitCursor(call_.plan->visitors(first_ + i));
    const Index head = kv_head * call_.group + member;
    for (Index t = next_tile(cursors, 0); t >= 0; t = next_tile(cursors, t + 1)) {
      prefetch_queries(item, head, t + 1);
      prefetch_results(call_.query_order, gradients.dq, t * tile, call_.tile_rows(t));
      visit_queries(item, head, t, key_group, gradients, score);
      if (++passed % relative_flush_interval == 0) flush_relative();
      if (!at_once || member + 1 < call_.group) continue;
      deliver_waiting(gradients.dq);
      // In ascending order, because the first round of a token is written and the others are added.
      while (written_ < count_ && cursors_[written_].ends_at(t))
        write_keys(written_++, item, kv_head, gradients);
    }
  }
}

/// Rows that are in no order, while others are computed.
template <class T>
void KeyGroupWorker<T>::prefetch_queries(Index item, Index head, Index query_tile) const {
  if (query_tile >= call_.query_tiles()) return;
  prefetch_rows(call_.query_rows(call_.q, item, head, query_tile), call_.dim);
  prefetch_rows(call_.query_rows(input_.dout, item, head, query_tile), call_.value_dim);
}

template <class T>
void KeyGroupWorker<T>::prefetch_keys(Index i, Index item, Index kv_head) const {
  if (first_ + i >= call_.key_tiles()) return;
  prefetch_rows(call_.key_rows(call_.k, item, kv_head, first_ + i), call_.dim);
  prefetch_rows(call_.key_rows(call_.v, item, kv_head, first_ + i), call_.value_dim);
}

/// The rows that a key tile's gradients will be added to.
template <class T>
void KeyGroupWorker<T>::prefetch_key_results(Index i, const GradientViews& gradients) const {
  const Index first = (first_ + i) * tile, count = call_.tile_keys(first_ + i);
  prefetch_results(call_.key_order, gradients.dk, first, count);
  prefetch_results(call_.key_order, gradients.dv, first, count);
}

template <class T>
void KeyGroupWorker<T>::load_queries(Index item, Index head, Index query_tile) {
  tile_.load_queries(item, head, query_tile);
  keys_.load_queries(tile_, call_.query_rows(call_.q, item, head, query_tile),
                     call_.query_rows(input_.dout, item, head, query_tile), query_tile * tile);
}

template <class T>
void KeyGroupWorker<T>::visit_queries(Index item, Index head, Index query_tile, Index key_group,
                                      const GradientViews& gradients, ScoreGradients& score) {
  load_queries(item, head, query_tile);
  for (Index i = 0; i < count_; ++i) {
    if (!cursors_[i].visits(query_tile)) continue;
    if (visits_[i] == 0) {
      load_keys(i, item, call_.kv_head(head));
      prefetch_keys(i + 1, item, call_.kv_head(head));
      prefetch_key_results(i, gradients);
    }
    visit(i, cursors_[i].mask(), query_tile, head, score);
  }
  finish_relative_gradients();
  if (!call_.wants_query_gradients()) return clear(dqueries_);
  sums_.add(
      {item * call_.heads + head, query_tile, key_group, dqueries_.data(), tile_.rows() * width_},
      [&](const double* wide, const float* rest) {
        write_queries({item, head, query_tile}, {wide, rest}, gradients.dq);
      });
  // Rows past the last query hold zeros or NaN; neither may stay.
  std::fill(dqueries_.data() + tile_.rows() * width_, dqueries_.end(), 0.0f);
}

/// dq = scale * (sum over keys of dlogit * k)
template <class T>
void KeyGroupWorker<T>::write_queries(const QueryPlace& place, const SplitSums& sums,
                                      const AnyMutableView& dq) {
  const auto row = [&](Index r, float* out) {
    call_.kernels.vectors.narrow(
        sums.wide == nullptr ? nullptr : sums.wide + r * width_, sums.rest + r * width_,
        call_.score_rule.scale(place.query_tile * tile + r), call_.dim, out);
  };
  if (call_.query_order == nullptr) {
    const GradientRows rows = query_gradient_rows(call_, place, dq);
    for (Index r = 0; r < tile_.rows(); ++r)
      write_row(call_.kernels, rows.to.type(), rows.to.row(rows.item, rows.head, rows.first + r),
                call_.dim, [&](float* out) { row(r, out); });
    return;
  }
  const Index first = std::ssize(waiting_numbers_);
  waiting_.push_back(place.query_tile);
  waiting_numbers_.resize(first + tile * call_.dim);
  for (Index r = 0; r < tile_.rows(); ++r) row(r, waiting_numbers_.data() + first + r * call_.dim);
}

/// Of tiles that waited until this task may write.
template <class T>
void KeyGroupWorker<T>::deliver_waiting(const AnyMutableView& dq) {
  const float* from = waiting_numbers_.data();
  for (const Index query_tile : waiting_) {
    for (Index r = 0; r < call_.tile_rows(query_tile); ++r)
      deliver_row(call_.kernels, call_.query_order, dq, 0, 0, query_tile * tile + r,
                  [&](float* out) { std::copy_n(from + r * call_.dim, call_.dim, out); });
    from += tile * call_.dim;
  }
  waiting_.clear();
  waiting_numbers_.clear();
}

template <class T>
void KeyGroupWorker<T>::visit(Index i, std::int32_t mask_id, Index query_tile, Index head,
                              ScoreGradients& score) {
  if (!keys_.visit_fused(i, tile_, first_ + i, mask_id, dqueries_.data()))
    visit_in_steps(i, mask_id, query_tile, head, score);
  if (++visits_[i] % KeyGradients<T>::flush_interval == 0) keys_.flush(i);
}

template <class T>
void KeyGroupWorker<T>::visit_in_steps(Index i, std::int32_t mask_id, Index query_tile, Index head,
                                       ScoreGradients& score) {
  const Index j = first_ + i;
  tile_.differentiate(keys_.keys(i), keys_.values(i), j, mask_id);
  if (call_.score_rule.has_diagonal()) bias_gradients(query_tile, j, head, score);
  tile_.softcap_backward();
  relative_gradients(call_.distance(query_tile, j));
  keys_.products(i, tile_, dqueries_.data());
}

template <class T>
void KeyGroupWorker<T>::bias_gradients(Index query_tile, Index j, Index head,
                                       ScoreGradients& score) {
  const Index member = head % call_.group;
  double diagonals[2 * tile] = {};
  call_.kernels.score.sum_diagonals(tile_.dlogits(), tile_.rows(), diagonals);
  const Index buckets = score.table.size() / call_.group;
  for (Index i = 0; i < 2 * tile - 1; ++i) {
    const Index relative = i - (tile - 1) - call_.distance(query_tile, j);
    if (score.slopes.size() > 0)
      score.slopes[member] -= static_cast<double>(std::abs(relative)) * diagonals[i];
    // A diagonal outside the pattern is all zeros, and its slopes are not worth a logarithm.
    if (score.kerple.size() > 0 && diagonals[i] != 0) {
      const ScoreRule::KerpleSlopes slopes = call_.score_rule.kerple_slopes(head, relative);
      score.kerple[2 * member] += slopes.amplitude * diagonals[i];
      score.kerple[2 * member + 1] += slopes.rate * diagonals[i];
    }
    if (buckets > 0)
      score.table[member * buckets + call_.score_rule.bucket(relative)] += diagonals[i];
  }
}

template <class T>
void KeyGroupWorker<T>::relative_gradients(Index distance) {
  if (call_.relative)
    key_band_.add(tile_.dlogits(), tile_.mask(), distance, key_band_queries(), relative_keys_);
  if (call_.relative_values)
    value_band_.add(tile_.probabilities(), tile_.mask(), distance, value_band_queries(),
                    relative_values_);
}

template <class T>
void KeyGroupWorker<T>::finish_relative_gradients() {
  if (call_.relative) key_band_.finish(key_band_queries(), relative_keys_);
  if (call_.relative_values) value_band_.finish(value_band_queries(), relative_values_);
}

template <>
RelativeBandGradient::Queries KeyGroupWorker<float>::key_band_queries() {
  return {keys_.queries(), tile_.rows(), dqueries_.data()};
}

template <>
RelativeBandGradient::Queries KeyGroupWorker<float>::value_band_queries() {
  return {keys_.douts(), tile_.rows(), nullptr};
}

template <>
void KeyGroupWorker<Bf16>::relative_gradients(Index) {}

template <>
void KeyGroupWorker<Bf16>::finish_relative_gradients() {}

template <class T>
void KeyGroupWorker<T>::flush_relative() {
  relative_keys_.flush();
  relative_values_.flush();
}

template <class T>
void KeyGroupWorker<T>::write_keys(Index i, Index item, Index kv_head,
                                   const GradientViews& gradients) {
  if (!call_.wants_key_gradients()) return;
  if (visits_[i] == 0) load_keys(i, item, kv_head);  // zeros
  keys_.write(i, {item, kv_head, first_ + i}, gradients);
}

template class KeyGroupWorker<float>;
template class KeyGroupWorker<Bf16>;

}  // namespace rapt::detail
