#include "attention/scoring.h"

#include <algorithm>

namespace rapt {

Scoring::Scoring(const Call& call)
    : call_(call),
      queries_(call.pairs == nullptr ? tile * call.dim : 0),
      left_(call.pairs == nullptr ? 0 : tile * call.pair_depth(call.dim)),
      narrow_factors_(call.pairs == nullptr ? 0 : tile),
      factors_(tile),
      band_(call.relative.get(), call.kernels) {
  if (call.rule.has_dense()) {
    dense_ = Buffer<float>(tile * tile);
    dense_mask_ = Buffer<std::uint64_t>(tile);
  }
}

void Scoring::take_queries(Index item, Index head, Index query_tile) {
  item_ = item;
  head_ = head;
  query_tile_ = query_tile;
  rows_ = call_.tile_rows(query_tile);
  for (Index r = 0; r < rows_; ++r) factors_[r] = call_.rule.query_factor(query_tile * tile + r);
  band_.begin();
  const InputRows rows = rows_of(call_.q, item, head, query_tile * tile, rows_);
  if (call_.pairs == nullptr) {
    call_.kernels.pack_strips(rows, call_.dim, factors_.data(), queries_.data());
    return;
  }
  call_.pairs->pack_left(rows, call_.dim, call_.pair_depth(call_.dim), left_.data());
  std::transform(factors_.begin(), factors_.begin() + rows_, narrow_factors_.begin(),
                 [](double x) { return static_cast<float>(x); });
  plain_ = !call_.rule.has_softcap() && !call_.rule.has_diagonal() && !call_.rule.has_dense() &&
           std::all_of(narrow_factors_.begin(), narrow_factors_.begin() + rows_,
                       [](float x) { return x > 0; });
}

/// The plan's mask, and the pairs a dense bias hides.
void Scoring::take_mask(Index key_tile, std::int32_t mask_id) {
  if (mask_id == Visit::whole) {
    mask_.set_whole();
  } else {
    mask_.set(call_.plan->mask(mask_id), call_.kernels.lanes);
  }
  if (!call_.rule.has_dense()) return;
  if (mask_.whole()) {
    std::fill(dense_mask_.begin(), dense_mask_.end(), std::uint64_t{0});
    std::fill_n(dense_mask_.begin(), rows_, ~std::uint64_t{0});
  } else {
    std::copy_n(mask_.words(), tile, dense_mask_.data());
  }
  if (call_.rule.dense_tile(item_, head_, query_tile_, key_tile, dense_.data(),
                            dense_mask_.data())) {
    mask_.set(
        std::span<const std::uint64_t, tile>(dense_mask_.data(), static_cast<std::size_t>(tile)),
        call_.kernels.lanes);
  }
}

void Scoring::products(RightTile keys, float* scores) {
  call_.pairs->scores(left_.data(), call_.pair_depth(call_.dim), keys.pairs, rows_, mask_.clips(),
                      scores);
}

/// Pairs are multiplied by the factors only now: a query times its factor is no bf16.
void Scoring::multiply(RightTile keys, float* scores) {
  if (call_.pairs == nullptr) {
    call_.kernels.scores(queries_.data(), keys.panels, call_.dim, row_strips(), mask_.clips(),
                         scores);
    return;
  }
  products(keys, scores);
  call_.pairs->scale(scores, rows_, mask_.clips(), narrow_factors_.data());
}

void Scoring::logits(RightTile keys, Index key_tile, std::int32_t mask_id, float* scores,
                     float* tanh_out) {
  take_mask(key_tile, mask_id);
  const Kernels& kernels = call_.kernels;
  const Rule& rule = call_.rule;
  const Clip* clips = mask_.clips();
  const Index count = row_strips();
  const Index distance = call_.distance(query_tile_, key_tile);
  multiply(keys, scores);
  band_.add(queries_.data(), rows_, distance, clips, scores);
  if (rule.has_softcap()) kernels.softcap(scores, count, clips, rule.softcap_log2(), tanh_out);
  if (rule.has_diagonal())
    kernels.add_diagonal(scores, count, clips, rule.diagonal(head_) - distance);
  if (rule.has_dense()) kernels.add_tile(scores, count, clips, dense_.data());
}

}  // namespace rapt
