#include "attention/scoring.h"

#include <algorithm>

namespace rapt {

Index Scoring::table_tiles(const Call& call) {
  return call.rule.has_relative_keys() ? divide_up(2 * call.rule.reach() + 1, tile) : 0;
}

Scoring::Scoring(const Call& call)
    : call_(call), queries_(tile * call.dim), factors_(tile), table_tiles_(table_tiles(call)) {
  if (call.rule.has_dense()) {
    dense_ = Buffer<float>(tile * tile);
    dense_mask_ = Buffer<std::uint64_t>(tile);
  }
  if (!call.rule.has_relative_keys()) return;
  const View& table = call.how.bias.keys->table;
  table_ = Buffer<float>(table_tiles_ * tile * call.dim);
  for (Index t = 0; t < table_tiles_; ++t) {
    call.kernels.pack_panels(table.data() + t * tile * table.stride(0), table.stride(0),
                             std::min(tile, table.size(0) - t * tile), call.dim,
                             table_.data() + t * tile * call.dim);
  }
  band_stride_ = 2 * call.rule.reach() + 1 + 2 * max_lanes;
  band_ = Buffer<float>(tile * band_stride_);
}

void Scoring::take_queries(Index item, Index head, Index query_tile) {
  item_ = item;
  head_ = head;
  query_tile_ = query_tile;
  rows_ = call_.tile_rows(query_tile);
  for (Index r = 0; r < rows_; ++r) factors_[r] = call_.rule.query_factor(query_tile * tile + r);
  call_.kernels.pack_strips(call_.q.row(item, head, query_tile * tile), call_.q.stride(2), rows_,
                            call_.dim, factors_.data(), queries_.data());
  if (call_.rule.has_relative_keys()) make_band();
}

void Scoring::make_band() {
  const Index width = 2 * call_.rule.reach() + 1;
  alignas(64) float product[tile * tile];
  for (Index t = 0; t < table_tiles_; ++t) {
    call_.kernels.scores(queries_.data(), table_.data() + t * tile * call_.dim, call_.dim,
                         row_strips(), nullptr, product);
    const Index columns = std::min(tile, width - t * tile);
    for (Index r = 0; r < rows_; ++r) {
      std::copy_n(product + r * tile, columns,
                  band_.data() + r * band_stride_ + max_lanes + t * tile);
    }
  }
  for (Index r = 0; r < rows_; ++r) {
    float* row = band_.data() + r * band_stride_;
    std::fill_n(row, max_lanes, row[max_lanes]);
    std::fill_n(row + max_lanes + width, max_lanes, row[max_lanes + width - 1]);
  }
  // Rows past the last query are computed and thrown away: they must only be finite.
  std::fill(band_.data() + rows_ * band_stride_, band_.data() + row_strips() * strip * band_stride_,
            0.0f);
}

void TileMask::set(std::span<const std::uint64_t, tile> words, Index lanes) {
  words_ = words.data();
  clip_strips(words, lanes, clips_);
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
  if (rule.has_relative_keys()) {
    kernels.add_banded(scores, count, clips, band_.data(), band_stride_, rule.reach(), -distance);
  }
  if (rule.has_softcap()) kernels.softcap(scores, count, clips, rule.softcap_log2(), tanh_out);
  if (rule.has_diagonal())
    kernels.add_diagonal(scores, count, clips, rule.diagonal(head_) - distance);
  if (rule.has_dense()) kernels.add_tile(scores, count, clips, dense_.data());
}

}  // namespace rapt
