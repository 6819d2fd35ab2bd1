#include "attention/backward/key_group.h"

#include <algorithm>
#include <cmath>

#include "attention/forward/nonfinite_products.h"

namespace rapt {
namespace {

/// Visits of a key tile between two flushes into f64: at most 256 terms in one f32 sum.
constexpr Index flush_interval = 4;
/// 1,024 terms are off by 2^-14 at most, and those are rounded to bf16 each.
constexpr Index pair_flush_interval = 16;

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

Index KeyGroupWorker::group_tiles(const Call& call) {
  // Visits of a query tile in one f32 sum: at most 256 terms. Beside terms of eight bits 512 are as
  // good, and queries are packed and summed half as often; short calls would have too few tasks.
  const Index few = call.pairs == nullptr || call.key_tiles() < 32 ? 4 : 8;
  if (call.slots == nullptr) return few;
  for (Index t = 0; t < call.query_tiles(); ++t) {
    Index visits = 0;
    for (const Visit& visit : call.plan->visits(t)) visits += visit.count;
    if (visits > few) return few;
  }
  return most_tiles;
}

KeyGroupWorker::KeyGroupWorker(const Call& call, const BackwardInput& input, QuerySums& sums)
    : call_(call),
      input_(input),
      sums_(sums),
      scoring_(call, input),
      pairs_(call, group_tiles(call)),
      width_(call.padded(call.dim)),
      value_width_(call.padded(call.value_dim)),
      tiles_(group_tiles(call)),
      alone_(call.context.threads() == 1),
      query_rows_(call.pairs == nullptr ? tile * width_ : 0),
      dout_rows_(call.pairs == nullptr ? tile * value_width_ : 0),
      dqueries_(tile * width_),
      key_band_(call.relative.get(), call.kernels),
      value_band_(call.relative_values.get(), call.kernels),
      relative_keys_(call.relative.get(), call.kernels),
      relative_values_(call.relative_values.get(), call.kernels) {
  clear(dqueries_);
}

KeyGroupWorker::Tile::Tile(const Call& call)
    : key_panels(tile * call.dim),
      key_rows(tile * call.padded(call.dim)),
      value_panels(tile * call.value_dim),
      dkeys(tile * call.padded(call.dim)),
      dvalues(tile * call.padded(call.value_dim)) {}

void KeyGroupWorker::begin(Index key_group) {
  first_ = key_group * tiles_;
  count_ = std::min(tiles_, call_.key_tiles() - first_);
  written_ = 0;
  std::fill(visits_, visits_ + count_, Index{0});
  relative_keys_.clear();
  relative_values_.clear();
}

void KeyGroupWorker::take_keys(Index i, Index item, Index kv_head) {
  const InputRows k = call_.key_rows(call_.k, item, kv_head, first_ + i);
  const InputRows v = call_.key_rows(call_.v, item, kv_head, first_ + i);
  if (call_.pairs != nullptr) return pairs_.take_keys(i, k, v);
  std::unique_ptr<Tile>& place = key_tiles_[i];
  if (idle_.empty()) {
    place = std::make_unique<Tile>(call_);
  } else {
    place = std::move(idle_.back());
    idle_.pop_back();
  }
  const double* factors = call_.factors_of_keys(first_ + i);
  place->keys_finite = call_.kernels.pack_panels(k, call_.dim, factors, place->key_panels.data());
  call_.kernels.pack_rows(k, call_.dim, factors, place->key_rows.data());
  call_.kernels.pack_panels(v, call_.value_dim, nullptr, place->value_panels.data());
  place->dkeys.clear();
  place->dvalues.clear();
}

void KeyGroupWorker::run(Index item, Index kv_head, Index key_group, const GradientViews& gradients,
                         ScoreGradients& score) {
  begin(key_group);
  // Several tasks add to one token: in the order of the tasks.
  const bool in_turn = call_.query_order != nullptr;
  if (in_turn && alone_) sums_.enter_delivery(key_group);
  visit_members(item, kv_head, key_group, gradients, score);
  flush_relative();
  if (in_turn && !alone_) sums_.enter_delivery(key_group);
  deliver_waiting(gradients.dq);
  while (written_ < count_) write_keys(written_++, item, kv_head, gradients);
  if (in_turn) sums_.leave_delivery();
}

/// Every query tile that sees a key of the group, of every head that shares the keys.
void KeyGroupWorker::visit_members(Index item, Index kv_head, Index key_group,
                                   const GradientViews& gradients, ScoreGradients& score) {
  const bool at_once = alone_ || call_.query_order == nullptr;
  Index passed = 0;  // query tiles
  for (Index member = 0; member < call_.group; ++member) {
    const std::span<VisitCursor> cursors(cursors_, static_cast<std::size_t>(count_));
    for (Index i = 0; i < count_; ++i) cursors_[i] = VisitCursor(call_.plan->visitors(first_ + i));
    const Index head = kv_head * call_.group + member;
    for (Index t = next_tile(cursors, 0); t >= 0; t = next_tile(cursors, t + 1)) {
      expect_queries(item, head, t + 1);
      expect_results(call_.query_order, gradients.dq, t * tile, call_.tile_rows(t));
      visit_queries(item, head, t, key_group, gradients, score);
      if (++passed % flush_interval == 0) flush_relative();
      if (!at_once || member + 1 < call_.group) continue;
      deliver_waiting(gradients.dq);
      // In ascending order, because the first round of a token is written and the others are added.
      while (written_ < count_ && cursors_[written_].ends_at(t))
        write_keys(written_++, item, kv_head, gradients);
    }
  }
}

/// Rows that lie in no order, while others are at work.
void KeyGroupWorker::expect_queries(Index item, Index head, Index query_tile) const {
  if (query_tile >= call_.query_tiles()) return;
  expect_rows(call_.query_rows(call_.q, item, head, query_tile), call_.dim);
  expect_rows(call_.query_rows(input_.dout, item, head, query_tile), call_.value_dim);
}

void KeyGroupWorker::expect_keys(Index i, Index item, Index kv_head) const {
  if (first_ + i >= call_.key_tiles()) return;
  expect_rows(call_.key_rows(call_.k, item, kv_head, first_ + i), call_.dim);
  expect_rows(call_.key_rows(call_.v, item, kv_head, first_ + i), call_.value_dim);
}

/// The rows that a key tile's gradients will be added to.
void KeyGroupWorker::expect_key_results(Index i, const GradientViews& gradients) const {
  const Index first = (first_ + i) * tile, count = call_.tile_keys(first_ + i);
  expect_results(call_.key_order, gradients.dk, first, count);
  expect_results(call_.key_order, gradients.dv, first, count);
}

void KeyGroupWorker::take_queries(Index item, Index head, Index query_tile) {
  scoring_.take_queries(item, head, query_tile);
  const InputRows q = call_.query_rows(call_.q, item, head, query_tile);
  const InputRows dout = call_.query_rows(input_.dout, item, head, query_tile);
  if (call_.pairs != nullptr) return pairs_.take_queries(q, dout, query_tile * tile);
  queries_finite_ = call_.kernels.pack_rows(q, call_.dim, scoring_.factors(), query_rows_.data());
  douts_finite_ =
      call_.kernels.pack_rows(dout, call_.value_dim, scoring_.output_factors(), dout_rows_.data());
}

void KeyGroupWorker::visit_queries(Index item, Index head, Index query_tile, Index key_group,
                                   const GradientViews& gradients, ScoreGradients& score) {
  take_queries(item, head, query_tile);
  for (Index i = 0; i < count_; ++i) {
    if (!cursors_[i].visits(query_tile)) continue;
    if (visits_[i] == 0) {
      take_keys(i, item, call_.kv_head(head));
      expect_keys(i + 1, item, call_.kv_head(head));
      expect_key_results(i, gradients);
    }
    visit(i, cursors_[i].mask(), query_tile, head, score);
  }
  finish_relative_gradients();
  sums_.add({item * call_.heads + head, query_tile, key_group, tiles_, dqueries_.data(),
             scoring_.rows() * width_},
            [&](const double* wide, const float* rest) {
              write_queries({item, head, query_tile}, {wide, rest}, gradients.dq);
            });
  // Rows past the last query gathered zeros or NaN; neither may stay.
  std::fill(dqueries_.data() + scoring_.rows() * width_, dqueries_.end(), 0.0f);
}

/// dq = scale * (sum over keys of dlogit * k)
void KeyGroupWorker::write_queries(const QueryPlace& place, const SplitSums& sums,
                                   const AnyMutableView& dq) {
  const auto row = [&](Index r, float* out) {
    call_.kernels.narrow(sums.wide == nullptr ? nullptr : sums.wide + r * width_,
                         sums.rest + r * width_, call_.rule.scale(place.query_tile * tile + r),
                         call_.dim, out);
  };
  if (call_.query_order == nullptr) {
    for (Index r = 0; r < scoring_.rows(); ++r)
      deliver_row(call_.kernels, nullptr, dq, place.item, place.head, place.query_tile * tile + r,
                  [&](float* out) { row(r, out); });
    return;
  }
  const std::size_t first = waiting_numbers_.size();
  waiting_.push_back(place.query_tile);
  waiting_numbers_.resize(first + static_cast<std::size_t>(tile * call_.dim));
  for (Index r = 0; r < scoring_.rows(); ++r)
    row(r, waiting_numbers_.data() + first + r * call_.dim);
}

/// Of tiles that waited for this task's turn.
void KeyGroupWorker::deliver_waiting(const AnyMutableView& dq) {
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

RightTile KeyGroupWorker::keys_of(Index i) const {
  return call_.pairs == nullptr ? RightTile{.panels = key_tiles_[i]->key_panels.data()}
                                : pairs_.keys(i);
}

RightTile KeyGroupWorker::values_of(Index i) const {
  return call_.pairs == nullptr ? RightTile{.panels = key_tiles_[i]->value_panels.data()}
                                : pairs_.values(i);
}

void KeyGroupWorker::visit(Index i, std::int32_t mask_id, Index query_tile, Index head,
                           ScoreGradients& score) {
  if (!visit_alone(i, mask_id)) visit_in_steps(i, mask_id, query_tile, head, score);
  if (++visits_[i] % (call_.pairs == nullptr ? flush_interval : pair_flush_interval) == 0) flush(i);
}

/// Nothing but products and softmax: the kernels do it in one go. False if they cannot.
bool KeyGroupWorker::visit_alone(Index i, std::int32_t mask_id) {
  if (call_.pairs == nullptr || !scoring_.is_plain()) return false;
  scoring_.take_mask(first_ + i, mask_id);
  if (!pairs_.can_visit(i, scoring_.mask())) return false;
  pairs_.visit(i, scoring_.pair_visit(), dqueries_.data());
  return true;
}

void KeyGroupWorker::visit_in_steps(Index i, std::int32_t mask_id, Index query_tile, Index head,
                                    ScoreGradients& score) {
  const Index j = first_ + i;
  scoring_.differentiate(keys_of(i), values_of(i), j, mask_id);
  if (call_.rule.has_diagonal()) bias_gradients(query_tile, j, head, score);
  scoring_.uncap();
  relative_gradients(call_.distance(query_tile, j));
  if (call_.pairs == nullptr) {
    products(*key_tiles_[i]);
  } else {
    pairs_.products(i, scoring_.probabilities(), scoring_.dlogits(), scoring_.mask(),
                    dqueries_.data());
  }
}

/// dV += P' dO, dK += dS' Q, dQ += dS K
void KeyGroupWorker::products(Tile& key_tile) {
  const Kernels& kernels = call_.kernels;
  const TileMask& mask = scoring_.mask();
  const Index rows = scoring_.rows();
  const float* p = scoring_.probabilities();
  const float* ds = scoring_.dlogits();
  gather_columns(kernels, p, {dout_rows_.data(), value_width_, douts_finite_}, mask, rows,
                 key_tile.dvalues.recent());
  gather_columns(kernels, ds, {query_rows_.data(), width_, queries_finite_}, mask, rows,
                 key_tile.dkeys.recent());
  gather(kernels, ds, {key_tile.key_rows.data(), width_, key_tile.keys_finite}, mask, rows,
         dqueries_.data());
}

void KeyGroupWorker::bias_gradients(Index query_tile, Index j, Index head, ScoreGradients& score) {
  const Index member = head % call_.group;
  double diagonals[2 * tile] = {};
  call_.kernels.sum_diagonals(scoring_.dlogits(), scoring_.rows(), diagonals);
  const Index buckets = score.table.size() / call_.group;
  for (Index i = 0; i < 2 * tile - 1; ++i) {
    const Index relative = i - (tile - 1) - call_.distance(query_tile, j);
    if (score.slopes.size() > 0)
      score.slopes[member] -= static_cast<double>(std::abs(relative)) * diagonals[i];
    // A diagonal outside the pattern is all zeros, and its slopes are not worth a logarithm.
    if (score.kerple.size() > 0 && diagonals[i] != 0) {
      const Rule::KerpleSlopes slopes = call_.rule.kerple_slopes(head, relative);
      score.kerple[2 * member] += slopes.amplitude * diagonals[i];
      score.kerple[2 * member + 1] += slopes.rate * diagonals[i];
    }
    if (buckets > 0) score.table[member * buckets + call_.rule.bucket(relative)] += diagonals[i];
  }
}

void KeyGroupWorker::relative_gradients(Index distance) {
  if (call_.relative)
    key_band_.add(scoring_.dlogits(), scoring_.mask(), distance, key_band_queries(),
                  relative_keys_);
  if (call_.relative_values)
    value_band_.add(scoring_.probabilities(), scoring_.mask(), distance, value_band_queries(),
                    relative_values_);
}

void KeyGroupWorker::finish_relative_gradients() {
  if (call_.relative) key_band_.finish(key_band_queries(), relative_keys_);
  if (call_.relative_values) value_band_.finish(value_band_queries(), relative_values_);
}

RelativeBandGradient::Queries KeyGroupWorker::key_band_queries() {
  return {{query_rows_.data(), width_, queries_finite_}, scoring_.rows(), dqueries_.data()};
}

RelativeBandGradient::Queries KeyGroupWorker::value_band_queries() {
  return {{dout_rows_.data(), value_width_, douts_finite_}, scoring_.rows(), nullptr};
}

void KeyGroupWorker::flush_relative() {
  relative_keys_.flush();
  relative_values_.flush();
}

void KeyGroupWorker::flush(Index i) {
  if (call_.pairs != nullptr) return pairs_.flush(i);
  key_tiles_[i]->dkeys.flush(call_.kernels);
  key_tiles_[i]->dvalues.flush(call_.kernels);
}

void KeyGroupWorker::write_pairs(Index i, Index item, Index kv_head,
                                 const GradientViews& gradients) {
  const auto copy = [&](const float* from, Index width, const AnyMutableView& to, Index numbers) {
    for (Index r = 0; r < call_.tile_keys(first_ + i); ++r)
      call_.kernels.store_numbers(from + r * width, numbers, to.type(),
                                  to.row(item, kv_head, (first_ + i) * tile + r));
  };
  copy(pairs_.dkeys(i), width_, gradients.dk, call_.dim);
  copy(pairs_.dvalues(i), value_width_, gradients.dv, call_.value_dim);
}

void KeyGroupWorker::write_keys(Index i, Index item, Index kv_head,
                                const GradientViews& gradients) {
  if (visits_[i] == 0) take_keys(i, item, kv_head);  // zeros
  if (call_.pairs != nullptr) return write_pairs(i, item, kv_head, gradients);
  const auto copy = [&](const FlushedSums& sums, double factor, const AnyMutableView& to) {
    const Index width = sums.size() / tile;
    for (Index r = 0; r < call_.tile_keys(first_ + i); ++r)
      deliver_row(
          call_.kernels, call_.key_order, to, item, kv_head, (first_ + i) * tile + r,
          [&](float* out) { sums.narrow(call_.kernels, r * width, to.dim(), factor, out); });
  };
  copy(key_tiles_[i]->dkeys, call_.rule.key_gradient_factor(), gradients.dk);
  copy(key_tiles_[i]->dvalues, 1, gradients.dv);
  idle_.push_back(std::move(key_tiles_[i]));
}

}  // namespace rapt
