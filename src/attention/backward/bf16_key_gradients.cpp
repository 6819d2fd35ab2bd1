#include <algorithm>

#include "attention/backward/key_gradients.h"

namespace rapt::detail {

KeyGradients<Bf16>::KeyGradients(const Call& call, Index key_tiles)
    : call_(call),
      kernels_(tile_kernels<Bf16>(call.kernels)),
      depth_(packed_depth<Bf16>(call.kernels, call.dim)),
      value_depth_(packed_depth<Bf16>(call.kernels, call.value_dim)),
      width_(packed_width<Bf16>(call.kernels, call.dim)),
      value_width_(packed_width<Bf16>(call.kernels, call.value_dim)),
      tiles_(key_tiles),
      query_columns_(tile * width_),
      dout_columns_(tile * value_width_),
      query_scales_(call.score_rule.scale_varies() ? tile : 0),
      interleaved_(tile * tile),
      interleaved_dlogits_(tile * tile),
      dlogit_strips_(tile * tile),
      columns_(tile * std::max(width_, value_width_)),
      sums_(tile * std::max(width_, value_width_)) {
  for (Tile& t : tiles_) {
    t.key_panels = Buffer<Bf16>(tile * depth_);
    t.key_rows = Buffer<Bf16>(tile * width_);
    t.value_panels = Buffer<Bf16>(tile * value_depth_);
    t.dkeys = FlushedSums(tile * width_);
    t.dvalues = FlushedSums(tile * value_width_);
  }
}

void KeyGradients<Bf16>::load_keys(Index i, const InputRows& keys, const InputRows& values,
                                   const double*) {
  Tile& t = tiles_[i];
  kernels_.pack_panels(keys, call_.dim, depth_ / 2, t.key_panels.data());
  t.keys_finite = kernels_.pack_rows(keys, call_.dim, width_, t.key_rows.data());
  kernels_.pack_panels(values, call_.value_dim, value_depth_ / 2, t.value_panels.data());
  t.dkeys.clear();
  t.dvalues.clear();
}

void KeyGradients<Bf16>::load_queries(const GradientTile<Bf16>&, const InputRows& queries,
                                      const InputRows& douts, Index first_query) {
  rows_ = queries.count;
  queries_finite_ = kernels_.pack_columns(queries, call_.dim, width_, query_columns_.data());
  douts_finite_ = kernels_.pack_columns(douts, call_.value_dim, value_width_, dout_columns_.data());
  if (query_scales_.size() == 0) return;
  for (Index r = 0; r < rows_; ++r)
    query_scales_[r] = static_cast<float>(call_.score_rule.scale(first_query + r));
}

void KeyGradients<Bf16>::products(Index i, GradientTile<Bf16>& from, float* dqueries) {
  Tile& t = tiles_[i];
  const float *probabilities = from.probabilities(), *dlogits = from.dlogits();
  const TileMask& mask = from.mask();
  kernels_.pack_interleaved(probabilities, rows_, nullptr, interleaved_.data());
  accumulate_transposed(kernels_, interleaved_.data(), probabilities,
                        {dout_columns_.data(), value_width_, douts_finite_}, mask, rows_,
                        t.dvalues.recent());
  kernels_.pack_interleaved(dlogits, rows_, query_scales(), interleaved_.data());
  accumulate_transposed(kernels_, interleaved_.data(), dlogits,
                        {query_columns_.data(), width_, queries_finite_}, mask, rows_,
                        t.dkeys.recent());
  kernels_.pack_scores(dlogits, rows_, dlogit_strips_.data());
  accumulate_values(kernels_, dlogit_strips_.data(), {t.key_rows.data(), width_, t.keys_finite},
                    mask, rows_, dqueries);
}

const float* KeyGradients<Bf16>::query_scales() const {
  return query_scales_.size() == 0 ? nullptr : query_scales_.data();
}

bool KeyGradients<Bf16>::visit_fused(Index i, GradientTile<Bf16>& from, Index key_tile,
                                     std::int32_t mask_id, float* dqueries) {
  if (!from.is_plain()) return false;
  from.load_mask(key_tile, mask_id);
  if (!is_safe(i, from.mask())) return false;
  Tile& t = tiles_[i];
  Bf16BackwardTile visit = from.fused_tile();
  visit.keys = t.key_panels.data();
  visit.values = t.value_panels.data();
  visit.key_rows = t.key_rows.data();
  visit.width = width_;
  visit.query_scales = query_scales();
  visit.dlogit_strips = dlogit_strips_.data();
  visit.probabilities = interleaved_.data();
  visit.dlogits = interleaved_dlogits_.data();
  visit.dqueries = dqueries;
  kernels_.backward(visit);
  if (!call_.wants_key_gradients()) return true;
  kernels_.accumulate_transposed(dout_columns_.data(), interleaved_.data(), value_width_,
                                 t.dvalues.recent());
  kernels_.accumulate_transposed(query_columns_.data(), interleaved_dlogits_.data(), width_,
                                 t.dkeys.recent());
  return true;
}

void KeyGradients<Bf16>::flush(Index i) {
  tiles_[i].dkeys.flush(call_.kernels.vectors);
  tiles_[i].dvalues.flush(call_.kernels.vectors);
}

/// [width][64] to [64][width], times the factor; valid until the next call.
const float* KeyGradients<Bf16>::rows_of_sums(const FlushedSums& sums, double factor) {
  sums.narrow(call_.kernels.vectors, 0, sums.size(), factor, columns_.data());
  kernels_.transpose(columns_.data(), sums.size() / tile, sums_.data());
  return sums_.data();
}

void KeyGradients<Bf16>::write(Index i, const KeyPlace& place, const GradientViews& gradients) {
  const auto copy = [&](const float* from, Index width, const GradientRows& rows) {
    for (Index r = 0; r < rows.count; ++r)
      call_.kernels.vectors.store(from + r * width, rows.to.dim(), rows.to.type(),
                                  rows.to.row(rows.item, rows.head, rows.first + r));
  };
  const double key_factor = query_scales_.size() == 0 ? call_.score_rule.scale(0) : 1;
  copy(rows_of_sums(tiles_[i].dkeys, key_factor), width_,
       key_gradient_rows(call_, place, gradients.dk, &CallPart::dk));
  copy(rows_of_sums(tiles_[i].dvalues, 1), value_width_,
       key_gradient_rows(call_, place, gradients.dv, &CallPart::dv));
}

}  // namespace rapt::detail
