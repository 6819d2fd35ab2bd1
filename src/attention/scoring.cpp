#include "attention/scoring.h"

#include <algorithm>

namespace rapt {

Scoring::Scoring(const Call& call)
    : call_(call),
      queries_(tile * call.dim),
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
  call_.kernels.pack_strips(rows_of(call_.q, item, head, query_tile * tile, rows_), call_.dim,
                            factors_.data(), queries_.data());
  band_.begin();
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

void Scoring::logits(const float* keys, Index key_tile, std::int32_t mask_id, float* scores,
                     float* tanh_out) {
  take_mask(key_tile, mask_id);
  const Kernels& kernels = call_.kernels;
  const Rule& rule = call_.rule;
  const Clip* clips = mask_.clips();
  const Index count = row_strips();
  const Index distance = call_.distance(query_tile_, key_tile);
  kernels.scores(queries_.data(), keys, call_.dim, count, clips, scores);
  band_.add(queries_.data(), rows_, distance, clips, scores);
  if (rule.has_softcap()) kernels.softcap(scores, count, clips, rule.softcap_log2(), tanh_out);
  if (rule.has_diagonal())
    kernels.add_diagonal(scores, count, clips, rule.diagonal(head_) - distance);
  if (rule.has_dense()) kernels.add_tile(scores, count, clips, dense_.data());
}

}  // namespace rapt
