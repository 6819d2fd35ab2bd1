#include "attention/forward/nonfinite_products.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/buffer.h"
#include "base/sizes.h"

namespace rapt::detail {
namespace {

/// The rows with zeros in place of what is not finite.
template <class T>
Buffer<T> without_special(const RightRows<T>& rows) {
  Buffer<T> clean(tile * rows.width);
  std::transform(rows.numbers, rows.numbers + clean.size(), clean.data(),
                 [](T x) { return std::isfinite(static_cast<float>(x)) ? x : T(); });
  return clean;
}

/// Calls add(row, column, number) for every number that is not finite.
template <class Add>
void for_each_special(const TileKernels<float>& tiles, const RightRows<float>& rows,
                      const Add& add) {
  for (Index first = 0; first < rows.width; first += tiles.panel) {
    const Index columns = std::min(tiles.panel, rows.width - first);
    for (Index r = 0; r < tile; ++r) {
      for (Index c = 0; c < columns; ++c) {
        const float x = rows.numbers[first * tile + r * columns + c];
        if (!std::isfinite(x)) add(r, first + c, x);
      }
    }
  }
}

/// Index of row r of a column in a bf16 tile, and of column c in a left operand.
Index place_of_row(Index r, Index column, Index width) {
  return (r / 32 * 16 + r % 16) * 2 * width + 2 * column + r % 32 / 16;
}
Index place_of_column(Index c) { return c / 32 * 32 + c % 16 * 2 + c % 32 / 16; }

bool sees(const TileMask& mask, Index r, Index c) { return (mask.words()[r] >> c & 1) != 0; }

}  // namespace

void accumulate_values(const TileKernels<float>& tiles, const float* scores,
                       const RightRows<float>& rows, const TileMask& mask, Index row_count,
                       float* out) {
  const Index row_strips = divide_up(row_count, strip);
  if (mask.whole() || rows.finite) {
    return tiles.accumulate_values(scores, rows.numbers, rows.width, row_strips, mask.clips(), out);
  }
  tiles.accumulate_values(scores, without_special(rows).data(), rows.width, row_strips,
                          mask.clips(), out);
  for_each_special(tiles, rows, [&](Index key, Index column, float x) {
    for (Index r = 0; r < row_count; ++r) {
      if (sees(mask, r, key)) out[r * rows.width + column] += scores[r * tile + key] * x;
    }
  });
}

void accumulate_values(const TileKernels<Bf16>& tiles, const Bf16* probabilities,
                       const RightRows<Bf16>& rows, const TileMask& mask, Index row_count,
                       float* out) {
  if (mask.whole() || rows.finite) {
    return tiles.accumulate_values(probabilities, rows.numbers, rows.width, row_count, mask.clips(),
                                   out);
  }
  tiles.accumulate_values(probabilities, without_special(rows).data(), rows.width, row_count,
                          mask.clips(), out);
  for (Index key = 0; key < tile; ++key) {
    for (Index c = 0; c < rows.width; ++c) {
      const auto x = static_cast<float>(rows.numbers[place_of_row(key, c, rows.width)]);
      if (std::isfinite(x)) continue;
      for (Index r = 0; r < row_count; ++r) {
        if (sees(mask, r, key))
          out[r * rows.width + c] +=
              static_cast<float>(probabilities[r * tile + place_of_column(key)]) * x;
      }
    }
  }
}

void accumulate_transposed(const TileKernels<float>& tiles, const float* scores,
                           const RightRows<float>& rows, const TileMask& mask, Index row_count,
                           float* out) {
  Clips clips;
  if (mask.whole()) {
    std::fill(std::begin(clips), std::end(clips), Clip{0, row_count});
    return tiles.accumulate_transposed(scores, rows.numbers, rows.width,
                                       row_count == tile ? nullptr : clips, out);
  }
  clip_columns(std::span<const std::uint64_t, tile>(mask.words(), tile), row_count, clips);
  if (rows.finite) return tiles.accumulate_transposed(scores, rows.numbers, rows.width, clips, out);
  tiles.accumulate_transposed(scores, without_special(rows).data(), rows.width, clips, out);
  for_each_special(tiles, rows, [&](Index r, Index column, float x) {
    for (Index key = 0; key < tile; ++key) {
      if (r < row_count && sees(mask, r, key))
        out[key * rows.width + column] += scores[r * tile + key] * x;
    }
  });
}

void accumulate_transposed(const TileKernels<Bf16>& tiles, const Bf16* interleaved,
                           const float* scores, const RightRows<Bf16>& columns,
                           const TileMask& mask, Index row_count, float* out) {
  if (mask.whole() || columns.finite)
    return tiles.accumulate_transposed(columns.numbers, interleaved, columns.width, out);
  tiles.accumulate_transposed(without_special(columns).data(), interleaved, columns.width, out);
  for (Index c = 0; c < columns.width; ++c) {
    for (Index r = 0; r < row_count; ++r) {
      const auto x = static_cast<float>(columns.numbers[c * tile + r]);
      if (std::isfinite(x)) continue;
      for (Index key = 0; key < tile; ++key) {
        if (sees(mask, r, key)) out[c * tile + key] += scores[r * tile + key] * x;
      }
    }
  }
}

}  // namespace rapt::detail
