#pragma once

#include <span>
#include <vector>

#include "kernels/context.h"
#include "positions/rope_rotation.h"
#include "positions/rope_table.h"
#include "positions/token_positions.h"

namespace rapt::detail {

/// Cosines and sines of all tokens of one call. Only the constructor can fail.
class RopeRows {
 public:
  /// `axes` is the axis of positions that each pair follows.
  RopeRows(const RopeTable& table, std::span<const Index> axes, const TokenPositions& positions,
           TokenGrid grid, const Context& context);

  /// As LoadCosSin asks for.
  void load(Index item, Index first, Index count, Index worker, const float** cos_sin);

 private:
  void make_pages(const Context& context) const;
  const float* row(Index position, float* scratch) const;
  const float* joined_row(Index item, Index token, float* scratch) const;
  float* scratch(Index worker, Index place) {
    return scratch_.data() + (worker * rope_block + place) * table_.row_numbers();
  }

  const RopeTable& table_;
  std::span<const Index> axes_;
  const TokenPositions& positions_;
  TokenGrid grid_;
  Buffer<float> scratch_;  // for rows that are not simply those of a page
};

}  // namespace rapt::detail
