#include "attention/plan/tile_mask.h"

#include <algorithm>
#include <bit>

#include "base/indexed_vector.h"
#include "base/sizes.h"

namespace rapt::detail {

void clip_strips(const std::uint64_t* mask, Index row_strips, Index lanes, Clips& clips) {
  for (Index s = 0; s < row_strips; ++s) {
    const std::uint64_t* rows = mask + s * strip;
    const std::uint64_t any = rows[0] | rows[1] | rows[2] | rows[3];
    clips[s] = {};
    if (any == 0) continue;
    const Index first = std::countr_zero(any);
    const Index last = tile - std::countl_zero(any);
    clips[s] = {first / lanes * lanes, round_up(last, lanes)};
  }
}

void clip_columns(std::span<const std::uint64_t, tile> mask, Index rows, Clips& clips) {
  std::uint64_t any[tile / clip_rows] = {};  // of a few rows each
  for (Index r = 0; r < rows; ++r) any[r / clip_rows] |= element(mask, r);
  for (Index s = 0; s < strips; ++s) {
    const std::uint64_t columns = std::uint64_t{0xF} << (s * strip);
    Index begin = 0, end = divide_up(rows, clip_rows);
    while (begin < end && (any[begin] & columns) == 0) ++begin;
    while (begin < end && (any[end - 1] & columns) == 0) --end;
    clips[s] = {begin * clip_rows, std::min(end * clip_rows, rows)};
  }
}

void TileMask::set(std::span<const std::uint64_t, tile> words, Index lanes) {
  words_ = words.data();
  clip_strips(words_, strips, lanes, clips_);
}

void TileMask::set_rows(const std::uint64_t* words, Index rows, Index lanes) {
  words_ = words;
  clip_strips(words_, divide_up(rows, strip), lanes, clips_);
}

std::uint64_t TileMask::rows_that_see(Index count) const {
  if (whole()) return ~std::uint64_t{0};
  std::uint64_t rows = 0;
  for (Index r = 0; r < count; ++r) rows |= std::uint64_t{words_[r] != 0} << r;
  return rows;
}

}  // namespace rapt::detail
