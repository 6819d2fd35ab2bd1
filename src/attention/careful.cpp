#include "attention/careful.h"

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
               clips);
  if (rows.finite) return kernels.gather_columns(scores, rows.numbers, rows.width, clips, out);
  kernels.gather_columns(scores, without_special(rows).data(), rows.width, clips, out);
  for_each_special(kernels, rows, [&](Index r, Index column, float x) {
    for (Index key = 0; key < tile; ++key) {
      if (r < row_count && sees(mask, r, key))
        out[key * rows.width + column] += scores[r * tile + key] * x;
    }
  });
}

}  // namespace rapt
