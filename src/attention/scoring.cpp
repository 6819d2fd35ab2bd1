#include "attention/scoring.h"

#include <algorithm>

namespace rapt {

Index Scoring::table_tiles(const Call& call) {
  return call.rule.has_relative_keys() ? divide_up(2 * call.rule.reach() + 1, tile) : 0;
}

Scoring::Scoring(const Call& call)
    : call_(call), queries_(tile * call.dim), factors_(tile), table_tiles_(table_tiles(call)) {
  if (call.rule.has_dense()) dense_ = Buffer<float>(tile * tile);
  if (!call.rule.has_relative_keys()) return;
  const View& table = call.how.bias.keys->table;
  table_ = Buffer<float>(table_tiles_ * tile * call.dim);
  for (Index t = 0; t < table_tiles_; ++t) {
    call.kernels.pack_panels(table.data() + t * tile * table.stride(0), table.stride(0),
                             std::min(tile, table.size(0) - t * tile), call.dim, table_.data() + t * tile * call.dim);
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
  call_.kernels.pack_strips(call_.q.row(item, head, query_tile * tile), call_.q.stride(2), rows_, call_.dim,
                            factors_.data(), queries_.data());
  if (call_.rule.has_relative_keys()) make_band();
}

void Scoring::make_band() {
  const Index width = 2 * call_.rule.reach() + 1;
  alignas(64) float product[tile * tile];
  for (Index t = 0; t < table_tiles_; ++t) {
    call_.kernels.scores(queries_.data(), table_.data() + t * tile * call_.dim, call_.dim, row_strips(), nullptr,
                         product);
    const Index columns = std::min(tile, width - t * tile);
    for (Index r = 0; r < rows_; ++r) {
      std::copy_n(product + r * tile, columns, band_.data() + r * band_stride_ + max_lanes + t * tile);
    }
  }
  for (Index r = 0; r < rows_; ++r) {
    float* row = band_.data() + r * band_stride_;
    std::fill_n(row, max_lanes, row[max_lanes]);
    std::fill_n(row + max_lanes + width, max_lanes, row[max_lanes + width - 1]);
  }
  // Rows past the last query are computed and thrown away: they must only be finite.
  std::fill(band_.data() + rows_ * band_stride_, band_.data() + row_strips() * strip * band_stride_, 0.0f);
}

void Scoring::logits(const float* keys, Index key_tile, const Clip* clips, float* scores, float* tanh_out) {
  const Kernels& kernels = call_.kernels;
  const Rule& rule = call_.rule;
  const Index count = row_strips();
  const Index distance = call_.distance(query_tile_, key_tile);
  kernels.scores(queries_.data(), keys, call_.dim, count, clips, scores);
  if (rule.has_relative_keys()) {
    kernels.add_banded(scores, count, clips, band_.data(), band_stride_, rule.reach(), -distance);
  }
  if (rule.has_softcap()) kernels.softcap(scores, count, clips, rule.softcap_log2(), tanh_out);
  if (rule.has_diagonal()) kernels.add_diagonal(scores, count, clips, rule.diagonal(head_) - distance);
  if (rule.has_dense()) {
    rule.dense_tile(item_, head_, query_tile_, key_tile, dense_.data());
    kernels.add_tile(scores, count, clips, dense_.data());
  }
}

}  // namespace rapt
