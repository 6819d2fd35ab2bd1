#include "attention/backward/bf16_gradients.h"

#include <algorithm>
#include <cmath>

namespace rapt {
PairGradients::PairGradients(const Call& call, Index key_tiles)
    : call_(call), width_(call.padded(call.dim)), value_width_(call.padded(call.value_dim)) {
  if (call.pairs == nullptr) return;
  tiles_.resize(at(key_tiles));
  for (Tile& t : tiles_) {
    t.key_pairs = Buffer<Bf16>(tile * call.pair_depth(call.dim));
    t.key_rows = Buffer<Bf16>(tile * width_);
    t.value_pairs = Buffer<Bf16>(tile * call.pair_depth(call.value_dim));
    t.dkeys = FlushedSums(tile * width_);
    t.dvalues = FlushedSums(tile * value_width_);
  }
  query_columns_ = Buffer<Bf16>(tile * width_);
  dout_columns_ = Buffer<Bf16>(tile * value_width_);
  natural_ = Buffer<Bf16>(tile * tile);
  other_natural_ = Buffer<Bf16>(tile * tile);
  left_ = Buffer<Bf16>(tile * tile);
  columns_ = Buffer<float>(tile * std::max(width_, value_width_));
  sums_ = Buffer<float>(tile * std::max(width_, value_width_));
  if (call.rule.scale_varies()) query_scales_ = Buffer<float>(tile);
}

void PairGradients::take_keys(Index i, const InputRows& keys, const InputRows& values) {
  Tile& t = tiles_[at(i)];
  const Kernels& kernels = call_.kernels;
  kernels.pack_key_pairs(keys, call_.dim, call_.pair_depth(call_.dim) / 2, t.key_pairs.data());
  t.keys_finite = kernels.pack_value_pairs(keys, call_.dim, width_, t.key_rows.data());
  kernels.pack_key_pairs(values, call_.value_dim, call_.pair_depth(call_.value_dim) / 2,
                         t.value_pairs.data());
  t.dkeys.clear();
  t.dvalues.clear();
}

void PairGradients::take_queries(const InputRows& queries, const InputRows& douts,
                                 Index first_query) {
  rows_ = queries.count;
  queries_finite_ = call_.pairs->pack_columns(queries, call_.dim, width_, query_columns_.data());
  douts_finite_ =
      call_.pairs->pack_columns(douts, call_.value_dim, value_width_, dout_columns_.data());
  if (query_scales_.size() == 0) return;
  for (Index r = 0; r < rows_; ++r)
    query_scales_[r] = static_cast<float>(call_.rule.scale(first_query + r));
}

void PairGradients::products(Index i, const float* probabilities, const float* dlogits,
                             const TileMask& mask, float* dqueries) {
  Tile& t = tiles_[at(i)];
  const PairKernels& pairs = *call_.pairs;
  pairs.pack_natural(probabilities, rows_, nullptr, natural_.data());
  gather_columns(pairs, natural_.data(), probabilities,
                 {dout_columns_.data(), value_width_, douts_finite_}, mask, rows_,
                 t.dvalues.recent());
  pairs.pack_natural(dlogits, rows_, query_scales(), natural_.data());
  gather_columns(pairs, natural_.data(), dlogits, {query_columns_.data(), width_, queries_finite_},
                 mask, rows_, t.dkeys.recent());
  pairs.pack_numbers(dlogits, rows_, left_.data());
  gather(pairs, left_.data(), {t.key_rows.data(), width_, t.keys_finite}, mask, rows_, dqueries);
}

const float* PairGradients::query_scales() const {
  return query_scales_.size() == 0 ? nullptr : query_scales_.data();
}

void PairGradients::visit(Index i, PairGradientVisit visit, float* dqueries) {
  Tile& t = tiles_[at(i)];
  const PairKernels& pairs = *call_.pairs;
  visit.keys = t.key_pairs.data();
  visit.values = t.value_pairs.data();
  visit.key_rows = t.key_rows.data();
  visit.width = width_;
  visit.query_scales = query_scales();
  visit.left = left_.data();
  visit.probability_pairs = natural_.data();
  visit.dlogit_pairs = other_natural_.data();
  visit.dqueries = dqueries;
  pairs.differentiate(visit);
  pairs.gather_columns(dout_columns_.data(), natural_.data(), value_width_, t.dvalues.recent());
  pairs.gather_columns(query_columns_.data(), other_natural_.data(), width_, t.dkeys.recent());
}

void PairGradients::flush(Index i) {
  tiles_[at(i)].dkeys.flush(call_.kernels);
  tiles_[at(i)].dvalues.flush(call_.kernels);
}

/// [width][64] to [64][width], times the factor.
const float* PairGradients::rows_of_sums(const FlushedSums& sums, double factor) {
  sums.narrow(call_.kernels, 0, sums.size(), factor, columns_.data());
  call_.pairs->transpose(columns_.data(), sums.size() / tile, sums_.data());
  return sums_.data();
}

const float* PairGradients::dkeys(Index i) {
  const double factor = query_scales_.size() == 0 ? call_.rule.scale(0) : 1;
  return rows_of_sums(tiles_[at(i)].dkeys, factor);
}

const float* PairGradients::dvalues(Index i) { return rows_of_sums(tiles_[at(i)].dvalues, 1); }

}  // namespace rapt
