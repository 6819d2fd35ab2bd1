#include "positions/token_positions.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "base/sizes.h"

namespace rapt::detail {
namespace {

void check_reach(const char* where, Index position) {
  check(-TokenPositions::furthest <= position && position <= TokenPositions::furthest, where,
        ": position ", position, " given, expected -2^40 to 2^40");
}

}  // namespace

TokenPositions::TokenPositions(const char* where, const Positions& positions, TokenGrid grid)
    : first_(positions.first()), axes_(positions.axes()) {
  check(grid.batch >= 0 && grid.tokens >= 0, where, ": a batch of ", grid.batch, " items with ",
        grid.tokens, " tokens given, expected 0 or more");
  using Kind = Positions::Kind;
  if (positions.kind() != Kind::counted) take_numbers(where, positions, grid);
  const bool listed = positions.kind() == Kind::listed || positions.kind() == Kind::grid;
  step_ = listed ? 0 : 1;
  if (checked_product({grid.batch, grid.tokens}) == 0) return;
  const auto given = numbers_ == nullptr ? std::span(&first_, 1) : positions.numbers();
  const auto [low, high] = std::minmax_element(given.begin(), given.end());
  check_reach(where, *low);
  check_reach(where, *high);
  lowest_ = *low;
  highest_ = checked_sum({*high, step_ * (grid.tokens - 1)});
  check_reach(where, highest_);
}

void TokenPositions::take_numbers(const char* where, const Positions& positions, TokenGrid grid) {
  const auto given = static_cast<Index>(positions.numbers().size());
  numbers_ = positions.numbers().data();
  if (positions.kind() == Positions::Kind::counted_each) {
    check(given == grid.batch, where, ": ", given,
          " first positions given, expected one for each of ", grid.batch, " items");
    item_stride_ = 1;
    return;
  }
  check(axes_ >= 1, where, ": positions on ", axes_, " axes given, expected 1 or more");
  const Index shared = checked_product({axes_, grid.tokens});
  const Index each = checked_product({shared, grid.batch});
  check(given == each || given == shared, where, ": ", given, " positions given, expected ", shared,
        " (", axes_ == 1 ? "" : "axes * ", "tokens) or ", each, " (", axes_ == 1 ? "" : "axes * ",
        "batch * tokens)");
  token_stride_ = 1;
  item_stride_ = given == each ? grid.tokens : 0;
  axis_stride_ = given / axes_;
}

}  // namespace rapt::detail
