#include "attention/careful.h"

#include <algorithm>

namespace rapt {
namespace {

/// to[0, width) += factor * (row r of `rows` in panels)
void add_row(const Kernels& kernels, const float* rows, Index width, Index r, float factor, float* to) noexcept {
  for (Index first = 0; first < width; first += kernels.panel) {
    const Index columns = std::min(kernels.panel, width - first);
    const float* from = rows + first * tile + r * columns;
    for (Index c = 0; c < columns; ++c) to[first + c] += factor * from[c];
  }
}

}  // namespace

void gather_carefully(const Kernels& kernels, const float* scores, const float* rows, Index width,
                      const std::uint64_t* mask, Index row_count, float* out) noexcept {
  for (Index r = 0; r < row_count; ++r) {
    for (Index c = 0; c < tile; ++c) {
      if (mask[r] >> c & 1) add_row(kernels, rows, width, c, scores[r * tile + c], out + r * width);
    }
  }
}

void gather_columns_carefully(const Kernels& kernels, const float* scores, const float* rows, Index width,
                              const std::uint64_t* mask, Index row_count, float* out) noexcept {
  for (Index r = 0; r < row_count; ++r) {
    for (Index c = 0; c < tile; ++c) {
      if (mask[r] >> c & 1) add_row(kernels, rows, width, r, scores[r * tile + c], out + c * width);
    }
  }
}

}  // namespace rapt
