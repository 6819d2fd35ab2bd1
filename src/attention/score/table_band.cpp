#include "attention/score/table_band.h"

#include <algorithm>

#include "attention/forward/nonfinite_products.h"

namespace rapt::detail {

TableBand::TableBand(const RelativeTiles* table, const Kernels& kernels)
    : table_(table), kernels_(kernels) {
  if (table == nullptr) return;
  band_ = Buffer<float>(tile * band_width);
  scratch_ = Buffer<float>(tile * tile);
}

void TableBand::add(const float* strips, Index rows, Index distance, const Clip* clips,
                    float* scores) {
  if (table_ == nullptr) return;
  fill(0, table_->lower(distance), strips, rows);
  fill(1, table_->upper(distance), strips, rows);
  kernels_.score.add_band(scores, divide_up(rows, strip), clips, band_.data());
}

/// Products with one table tile, in the lower or upper half of the band.
void TableBand::fill(Index half, Index table_tile, const float* strips, Index rows) {
  if (held_[half] == table_tile) return;
  const Index padded_rows = round_up(rows, strip);
  float* to = band_.data() + half * tile;
  const float* from = band_.data() + (1 - half) * tile;
  Index from_stride = band_width;
  if (held_[1 - half] != table_tile) {
    kernels_.tiles.scores(strips, table_->panels(table_tile), table_->dim(), padded_rows / strip,
                          nullptr, scratch_.data());
    // Rows past the last one are computed and thrown away: they must only be finite.
    std::fill(scratch_.data() + rows * tile, scratch_.data() + padded_rows * tile, 0.0f);
    from = scratch_.data();
    from_stride = tile;
  }
  for (Index r = 0; r < padded_rows; ++r)
    std::copy_n(from + r * from_stride, tile, to + r * band_width);
  held_[half] = table_tile;
}

TableAccumulator::TableAccumulator(const RelativeTiles* table, const Kernels& kernels)
    : table_(table), kernels_(kernels) {
  if (table == nullptr) return;
  for (Half* half : {&lower_, &upper_}) {
    half->sums = Buffer<float>(tile * tile);
    half->seen = Buffer<std::uint64_t>(tile);
  }
}

void TableAccumulator::add(const float* scores, const TileMask& mask, Index rows, Index distance,
                           float* out) {
  if (table_ == nullptr) return;
  skew(scores, mask, rows);
  const auto multiply = [&](const Half& half, Index table_tile) {
    TileMask seen;
    seen.set(std::span<const std::uint64_t, tile>(half.seen.data(), tile), kernels_.lanes);
    accumulate_values(kernels_.tiles, half.sums.data(),
                      {table_->rows(table_tile), table_->width(), table_->finite()}, seen, rows,
                      out);
  };
  multiply(lower_, table_->lower(distance));
  multiply(upper_, table_->upper(distance));
}

/// Key c of row r is 64 + c - r positions after the lower tile's first.
void TableAccumulator::skew(const float* scores, const TileMask& mask, Index rows) {
  for (Half* half : {&lower_, &upper_}) {
    std::fill(half->sums.begin(), half->sums.end(), 0.0f);
    std::fill(half->seen.begin(), half->seen.end(), std::uint64_t{0});
  }
  for (Index r = 0; r < rows; ++r) {
    const Clip clip = mask.whole() ? whole_row : mask.clips()[r / strip];
    const float* from = scores + r * tile;
    float* low = lower_.sums.data() + r * tile + tile - r;
    float* high = upper_.sums.data() + r * tile - r;
    for (Index c = clip.begin; c < std::min(r, clip.end); ++c) low[c] = from[c];
    for (Index c = std::max(r, clip.begin); c < clip.end; ++c) high[c] = from[c];
    const std::uint64_t word = mask.whole() ? ~std::uint64_t{0} : mask.words()[r];
    if (r > 0) lower_.seen[r] = word << (tile - r);
    upper_.seen[r] = word >> r;
  }
}

}  // namespace rapt::detail
