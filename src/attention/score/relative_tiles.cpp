#include "attention/score/relative_tiles.h"

#include <algorithm>

#include "base/sizes.h"

namespace rapt::detail {
RelativeTiles::RelativeTiles(const View& table, Lengths lengths, const Kernels& kernels)
    : dim_(table.size(1)),
      width_(round_up(dim_, kernels.lanes)),
      reach_((table.size(0) - 1) / 2),
      start_(lengths.queries - lengths.keys -
             divide_down(lengths.queries - lengths.keys, tile) * tile),
      // Relative positions of these lengths are between 1 - keys and queries - 1.
      first_(divide_down(std::max(-reach_, 1 - lengths.keys) - start_, tile)),
      last_(divide_down(std::min(reach_, lengths.queries - 1) - start_, tile)),
      panels_(checked_product({count(), tile, dim_})),
      rows_(checked_product({count(), tile, width_})) {
  Buffer<float> gathered(tile * dim_);
  for (Index t = 0; t < count(); ++t) {
    for (Index r = 0; r < tile; ++r) {
      std::copy_n(table.data() + table_row(t, r) * table.stride(0), dim_,
                  gathered.data() + r * dim_);
    }
    const InputRows rows{gathered.data(), Type::f32, dim_, tile};
    kernels.tiles.pack_panels(rows, dim_, nullptr, panels_.data() + t * tile * dim_);
    finite_ &= kernels.tiles.pack_rows(rows, dim_, nullptr, rows_.data() + t * tile * width_);
  }
}

Index RelativeTiles::clamped(Index tile_of_positions) const {
  return std::clamp(tile_of_positions, first_ - 1, last_ + 1) - (first_ - 1);
}

Index RelativeTiles::table_row(Index table_tile, Index r) const {
  const Index position = start_ + (first_ - 1 + table_tile) * tile + r;
  return std::clamp(position, -reach_, reach_) + reach_;
}

}  // namespace rapt::detail
