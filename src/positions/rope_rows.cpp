#include "positions/rope_rows.h"

#include <algorithm>
#include <cmath>

#include "base/indexed_vector.h"

namespace rapt::detail {

RopeRows::RopeRows(const RopeTable& table, std::span<const Index> axes,
                   const TokenPositions& positions, TokenGrid grid, const Context& context)
    : table_(table), axes_(axes), positions_(positions), grid_(grid) {
  make_pages(context);
  const bool from_pages =
      RopeTable::keeps(positions.lowest()) && RopeTable::keeps(positions.highest());
  if (from_pages && positions.axes() == 1) return;
  scratch_ =
      Buffer<float>(checked_product({worker_count(context), rope_block, table.row_numbers()}));
}

void RopeRows::make_pages(const Context& context) const {
  IndexedVector<Index> missing;
  Index last = -1;  // neighbours mostly share a page
  for (Index axis = 0; axis < positions_.axes(); ++axis) {
    for (Index item = 0; item < grid_.batch; ++item) {
      for (Index token = 0; token < grid_.tokens; ++token) {
        const Index position = positions_.at(item, token, axis);
        if (!RopeTable::keeps(position) || RopeTable::page_of(position) == last) continue;
        last = RopeTable::page_of(position);
        if (!table_.has_page(last)) missing.push_back(last);
      }
    }
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  for_each_task(context, std::ssize(missing),
                [&](Index task, Index) { table_.make_page(missing[task]); });
}

void RopeRows::load(Index item, Index first, Index count, Index worker, const float** cos_sin) {
  for (Index i = 0; i < count; ++i) {
    float* own = scratch_.size() == 0 ? nullptr : scratch(worker, i);
    cos_sin[i] = positions_.axes() == 1 ? row(positions_.at(item, first + i), own)
                                        : joined_row(item, first + i, own);
  }
}

const float* RopeRows::row(Index position, float* scratch) const {
  if (RopeTable::keeps(position)) return table_.row(position);
  table_.rotations().write_row(position, scratch);
  return scratch;
}

const float* RopeRows::joined_row(Index item, Index token, float* scratch) const {
  const Index pairs = table_.pairs();
  for (Index i = 0; i < pairs; ++i) {
    const Index position = positions_.at(item, token, element(axes_, i));
    if (!RopeTable::keeps(position)) {
      table_.rotations().write_pair(position, i, scratch);
      continue;
    }
    const float* from = table_.row(position);
    scratch[i] = from[i];
    scratch[pairs + i] = from[pairs + i];
  }
  return scratch;
}

}  // namespace rapt::detail
