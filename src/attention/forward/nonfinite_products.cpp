#include "attention/forward/nonfinite_products.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace rapt {
namespace {

/// The rows with zeros in place of what is not finite.
Buffer<float> without_special(const RightRows& rows) {
  Buffer<float> clean(tile * rows.width);
  std::transform(rows.numbers, rows.numbers + clean.size(), clean.data(),
                 [](float x) { return std::isfinite(x) ? x : 0.0f; });
  return clean;
}

/// Calls add(row, column, number) for every number that is not finite.
template <class Add>
void for_each_special(const Kernels& kernels, const RightRows& rows, const Add& add) {
  for (Index first = 0; first < rows.width; first += kernels.panel) {
    const Index columns = std::min(kernels.panel, rows.width - first);
    for (Index r = 0; r < tile; ++r) {
      for (Index c = 0; c < columns; ++c) {
        const float x = rows.numbers[first * tile + r * columns + c];
        if (!std::isfinite(x)) add(r, first + c, x);
      }
    }
  }
}

/// The numbers with zeros in place of what is not finite.
Buffer<Bf16> without_special(const PairRows& rows) {
  Buffer<Bf16> clean(tile * rows.width);
  std::transform(rows.numbers, rows.numbers + clean.size(), clean.data(),
                 [](Bf16 x) { return std::isfinite(static_cast<float>(x)) ? x : Bf16(); });
  return clean;
}

/// Where pairs put row r of a column, and column c of a left operand.
Index place_of_row(Index r, Index column, Index width) {
  return (r / 32 * 16 + r % 16) * 2 * width + 2 * column + r % 32 / 16;
}
Index place_of_column(Index c) { return c / 32 * 32 + c % 16 * 2 + c % 32 / 16; }

bool sees(const TileMask& mask, Index r, Index c) { return (mask.words()[r] >> c & 1) != 0; }

}  // namespace

void gather(const Kernels& kernels, const float* scores, const RightRows& rows,
            const TileMask& mask, Index row_count, float* out) {
  const Index row_strips = divide_up(row_count, strip);
  if (mask.whole() || rows.finite) {
    return kernels.gather(scores, rows.numbers, rows.width, row_strips, mask.clips(), out);
  }
  kernels.gather(scores, without_special(rows).data(), rows.width, row_strips, mask.clips(), out);
  for_each_special(kernels, rows, [&](Index key, Index column, float x) {
    for (Index r = 0; r < row_count; ++r) {
      if (sees(mask, r, key)) out[r * rows.width + column] += scores[r * tile + key] * x;
    }
  });
}

void gather_columns(const Kernels& kernels, const float* scores, const RightRows& rows,
                    const TileMask& mask, Index row_count, float* out) {
  Clips clips;
  if (mask.whole()) {
    std::fill(std::begin(clips), std::end(clips), Clip{0, row_count});
    return kernels.gather_columns(scores, rows.numbers, rows.width,
                                  row_count == tile ? nullptr : clips, out);
  }
  clip_columns(std::span<const std::uint64_t, tile>(mask.words(), static_cast<std::size_t>(tile)),
               row_count, clips);
  if (rows.finite) return kernels.gather_columns(scores, rows.numbers, rows.width, clips, out);
  kernels.gather_columns(scores, without_special(rows).data(), rows.width, clips, out);
  for_each_special(kernels, rows, [&](Index r, Index column, float x) {
    for (Index key = 0; key < tile; ++key) {
      if (r < row_count && sees(mask, r, key))
        out[key * rows.width + column] += scores[r * tile + key] * x;
    }
  });
}

void gather(const PairKernels& pairs, const Bf16* probabilities, const PairRows& rows,
            const TileMask& mask, Index row_count, float* out) {
  if (mask.whole() || rows.finite) {
    return pairs.gather(probabilities, rows.numbers, rows.width, row_count, mask.clips(), out);
  }
  pairs.gather(probabilities, without_special(rows).data(), rows.width, row_count, mask.clips(),
               out);
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

void gather_columns(const PairKernels& pairs, const Bf16* natural, const float* numbers,
                    const PairRows& columns, const TileMask& mask, Index row_count, float* out) {
  if (mask.whole() || columns.finite)
    return pairs.gather_columns(columns.numbers, natural, columns.width, out);
  pairs.gather_columns(without_special(columns).data(), natural, columns.width, out);
  for (Index c = 0; c < columns.width; ++c) {
    for (Index r = 0; r < row_count; ++r) {
      const auto x = static_cast<float>(columns.numbers[c * tile + r]);
      if (std::isfinite(x)) continue;
      for (Index key = 0; key < tile; ++key) {
        if (sees(mask, r, key)) out[c * tile + key] += numbers[r * tile + key] * x;
      }
    }
  }
}

}  // namespace rapt
