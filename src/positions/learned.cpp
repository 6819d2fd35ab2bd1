#include "base/check.h"
#include "base/flush_denormals.h"
#include "positions/table_rows.h"

namespace rapt {
using namespace detail;
namespace {

/// The row of every token. Throws if a token has none.
RowOfToken checked_rows(const char* where, const TokenPositions& at, Index offset, Index rows) {
  constexpr Index most = TokenPositions::furthest;
  check(-most <= offset && offset <= most && 0 <= at.lowest() + offset &&
            at.highest() + offset < rows,
        where, ": positions ", at.lowest(), " to ", at.highest(), " with offset ", offset,
        " given, expected rows 0 to ", rows - 1, " of the table");
  return [&at, offset](Index item, Index token) { return at.at(item, token) + offset; };
}

}  // namespace

Tensor learned_positions(View table, TokenGrid grid, const Positions& positions, Index offset) {
  const char* where = "learned_positions";
  check_table(where, "the table", table);
  const TokenPositions at = line_positions(where, positions, grid);
  Tensor out({grid.batch, grid.tokens, table.size(1)});
  if (grid.batch * grid.tokens > 0)
    look_up(table, checked_rows(where, at, offset, table.size(0)), 0, out);
  return out;
}

Tensor learned_positions_backward(View dout, Index rows, const Positions& positions, Index offset) {
  const FlushDenormals guard;  // whatever the caller rounds like, rapt rounds to nearest
  const char* where = "learned_positions_backward";
  check(rows >= 0, where, ": a table of ", rows, " rows given, expected 0 or more");
  check_token_gradient(where, dout);
  const TokenPositions at = line_positions(where, positions, {dout.size(0), dout.size(1)});
  const Shape table{rows, dout.size(2)};
  if (dout.size(0) * dout.size(1) == 0) return Tensor(table);
  return add_up(dout, checked_rows(where, at, offset, rows), 0, table);
}

std::vector<Index> positions_of_real_tokens(std::span<const std::uint8_t> real, Index padding) {
  std::vector<Index> positions;
  Index last = padding;
  for (const std::uint8_t is_real : real) positions.push_back(is_real != 0 ? ++last : padding);
  return positions;
}

}  // namespace rapt
