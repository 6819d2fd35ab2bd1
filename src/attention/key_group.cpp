#include "attention/key_group.h"

#include <algorithm>
#include <cmath>

#include "attention/careful.h"

namespace rapt {
namespace {

/// Query tiles between two flushes into f64: at most 256 terms in one f32 sum.
constexpr Index flush_interval = 4;

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

KeyGroupWorker::KeyGroupWorker(const Call& call, const BackwardInput& input, QuerySums& sums)
    : call_(call),
      input_(input),
      sums_(sums),
      scoring_(call, input),
      pairs_(call, tiles),
      width_(call.padded(call.dim)),
      value_width_(call.padded(call.value_dim)),
      query_rows_(call.pairs == nullptr ? tile * width_ : 0),
      dout_rows_(call.pairs == nullptr ? tile * value_width_ : 0),
      dqueries_(tile * width_),
      key_band_(call.relative.get(), call.kernels),
      value_band_(call.relative_values.get(), call.kernels),
      relative_keys_(call.relative.get(), call.kernels),
      relative_values_(call.relative_values.get(), call.kernels) {
  clear(dqueries_);
  if (call.pairs != nullptr) return;
  for (Tile& key_tile : tiles_) {
    key_tile.key_panels = Buffer<float>(tile * call.dim);
    key_tile.key_rows = Buffer<float>(tile * width_);
    key_tile.value_panels = Buffer<float>(tile * call.value_dim);
    key_tile.dkeys = Buffer<float>(tile * width_);
    key_tile.dvalues = Buffer<float>(tile * value_width_);
    key_tile.dkeys_wide = Buffer<double>(tile * width_);
    key_tile.dvalues_wide = Buffer<double>(tile * value_width_);
  }
}

void KeyGroupWorker::take_keys(Index item, Index kv_head, Index key_group) {
  first_ = key_group * tiles;
  count_ = std::min(tiles, call_.key_tiles() - first_);
  for (Index i = 0; i < count_; ++i) {
    Tile& key_tile = tiles_[i];
    const InputRows k = call_.key_rows(call_.k, item, kv_head, first_ + i);
    const InputRows v = call_.key_rows(call_.v, item, kv_head, first_ + i);
    if (call_.pairs != nullptr) {
      pairs_.take_keys(i, k, v);
      continue;
    }
    key_tile.keys_finite = call_.kernels.pack_panels(k, call_.dim, key_tile.key_panels.data());
    call_.kernels.pack_rows(k, call_.dim, nullptr, key_tile.key_rows.data());
    call_.kernels.pack_panels(v, call_.value_dim, key_tile.value_panels.data());
    clear(key_tile.dkeys);
    clear(key_tile.dvalues);
    clear(key_tile.dkeys_wide);
    clear(key_tile.dvalues_wide);
  }
}

void KeyGroupWorker::run(Index item, Index kv_head, Index key_group, const GradientViews& gradients,
                         ScoreGradients& score) {
  take_keys(item, kv_head, key_group);
  relative_keys_.clear();
  relative_values_.clear();
  Index since_flush = 0;
  for (Index member = 0; member < call_.group; ++member) {
    const std::span<VisitCursor> cursors(cursors_, static_cast<std::size_t>(count_));
    for (Index i = 0; i < count_; ++i) cursors_[i] = VisitCursor(call_.plan->visitors(first_ + i));
    Index soon = first_ + tiles;  // of the keys that this worker probably takes next
    for (Index t = next_tile(cursors, 0); t >= 0; t = next_tile(cursors, t + 1)) {
      expect(item, kv_head * call_.group + member, t + 1, soon++);
      visit_queries(item, kv_head * call_.group + member, t, key_group, score);
      if (++since_flush == flush_interval) {
        flush();
        since_flush = 0;
      }
    }
  }
  flush();
  write(item, kv_head, gradients);
}

/// Rows that lie in no order, while others are at work.
void KeyGroupWorker::expect(Index item, Index head, Index query_tile, Index key_tile) const {
  if (query_tile < call_.query_tiles()) {
    expect_rows(call_.query_rows(call_.q, item, head, query_tile), call_.dim);
    expect_rows(call_.query_rows(input_.dout, item, head, query_tile), call_.value_dim);
  }
  if (key_tile < std::min(first_ + 2 * tiles, call_.key_tiles())) {
    expect_rows(call_.key_rows(call_.k, item, call_.kv_head(head), key_tile), call_.dim);
    expect_rows(call_.key_rows(call_.v, item, call_.kv_head(head), key_tile), call_.value_dim);
  }
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
                                   ScoreGradients& score) {
  take_queries(item, head, query_tile);
  for (Index i = 0; i < count_; ++i) {
    if (!cursors_[i].visits(query_tile)) continue;
    visit(i, cursors_[i].mask(), query_tile, head, score);
  }
  finish_relative_gradients();
  const Index owner = item * call_.heads + head;
  const bool first = sums_.enter(*call_.plan, owner, query_tile, key_group, tiles);
  (first ? call_.kernels.widen_first : call_.kernels.widen)(
      dqueries_.data(), sums_.rows(owner, query_tile), scoring_.rows() * width_);
  sums_.leave(owner, query_tile);
  // Rows past the last query gathered zeros or NaN; neither may stay.
  std::fill(dqueries_.data() + scoring_.rows() * width_, dqueries_.end(), 0.0f);
}

RightTile KeyGroupWorker::keys_of(Index i) const {
  return call_.pairs == nullptr ? RightTile{.panels = tiles_[i].key_panels.data()} : pairs_.keys(i);
}

RightTile KeyGroupWorker::values_of(Index i) const {
  return call_.pairs == nullptr ? RightTile{.panels = tiles_[i].value_panels.data()}
                                : pairs_.values(i);
}

void KeyGroupWorker::visit(Index i, std::int32_t mask_id, Index query_tile, Index head,
                           ScoreGradients& score) {
  const Index j = first_ + i;
  scoring_.differentiate(keys_of(i), values_of(i), j, mask_id);
  if (call_.rule.has_diagonal()) bias_gradients(query_tile, j, head, score);
  scoring_.uncap();
  relative_gradients(call_.distance(query_tile, j));
  if (call_.pairs == nullptr) return products(tiles_[i]);
  pairs_.products(i, scoring_.probabilities(), scoring_.dlogits(), scoring_.mask(),
                  dqueries_.data());
}

/// dV += P' dO, dK += dS' Q, dQ += dS K
void KeyGroupWorker::products(Tile& key_tile) {
  const Kernels& kernels = call_.kernels;
  const TileMask& mask = scoring_.mask();
  const Index rows = scoring_.rows();
  const float* p = scoring_.probabilities();
  const float* ds = scoring_.dlogits();
  gather_columns(kernels, p, {dout_rows_.data(), value_width_, douts_finite_}, mask, rows,
                 key_tile.dvalues.data());
  gather_columns(kernels, ds, {query_rows_.data(), width_, queries_finite_}, mask, rows,
                 key_tile.dkeys.data());
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

void KeyGroupWorker::flush() {
  relative_keys_.flush();
  relative_values_.flush();
  if (call_.pairs != nullptr) return pairs_.flush();
  for (Index i = 0; i < count_; ++i) {
    Tile& key_tile = tiles_[i];
    call_.kernels.widen(key_tile.dkeys.data(), key_tile.dkeys_wide.data(), key_tile.dkeys.size());
    call_.kernels.widen(key_tile.dvalues.data(), key_tile.dvalues_wide.data(),
                        key_tile.dvalues.size());
  }
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

void KeyGroupWorker::write(Index item, Index kv_head, const GradientViews& gradients) {
  for (Index i = 0; i < count_; ++i) {
    if (call_.pairs != nullptr) {
      write_pairs(i, item, kv_head, gradients);
      continue;
    }
    const Tile& key_tile = tiles_[i];
    for (Index r = 0; r < call_.tile_keys(first_ + i); ++r) {
      const Index key = place_of(call_.key_order, (first_ + i) * tile + r);
      if (key < 0) continue;
      const AnyMutableView &dk = gradients.dk, &dv = gradients.dv;
      write_row(call_.kernels, dk.type(), dk.row(item, kv_head, key), call_.dim, [&](float* out) {
        call_.kernels.narrow(key_tile.dkeys_wide.data() + r * width_,
                             key_tile.dkeys.data() + r * width_, call_.rule.key_gradient_factor(),
                             call_.dim, out);
      });
      write_row(call_.kernels, dv.type(), dv.row(item, kv_head, key), call_.value_dim,
                [&](float* out) {
                  call_.kernels.narrow(key_tile.dvalues_wide.data() + r * value_width_,
                                       key_tile.dvalues.data() + r * value_width_, 1,
                                       call_.value_dim, out);
                });
    }
  }
}

}  // namespace rapt
