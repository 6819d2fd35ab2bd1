#include "base/check.h"
#include "base/flush_denormals.h"
#include "positions/table_rows.h"

namespace rapt {
using namespace detail;
namespace {

void check_axial(const char* where, const Axial& axial) {
  check_table(where, "the table of rows", axial.rows);
  check_table(where, "the table of columns", axial.columns);
}

TokenPositions grid_positions(const char* where, const Axial& axial, const Positions& positions,
                              TokenGrid grid) {
  TokenPositions at = line_positions(where, positions, grid);
  check(grid.batch * grid.tokens == 0 || (0 <= at.lowest() && at.highest() < axial.positions()),
        where, ": positions ", at.lowest(), " to ", at.highest(), " given, expected 0 to ",
        axial.positions() - 1, " on a grid of ", axial.rows.size(0), " rows and ",
        axial.columns.size(0), " columns");
  return at;
}

/// Row and column of every token.
struct Places {
  RowOfToken row, column;
};

Places places(const Axial& axial, const TokenPositions& at) {
  const Index rows = axial.rows.size(0), columns = axial.columns.size(0);
  if (axial.order == Axial::Order::row_major)
    return {[&at, columns](Index item, Index token) { return at.at(item, token) / columns; },
            [&at, columns](Index item, Index token) { return at.at(item, token) % columns; }};
  return {[&at, rows](Index item, Index token) { return at.at(item, token) % rows; },
          [&at, rows](Index item, Index token) { return at.at(item, token) / rows; }};
}

}  // namespace

Tensor axial_positions(const Axial& axial, TokenGrid grid, const Positions& positions) {
  const char* where = "axial_positions";
  check_axial(where, axial);
  const TokenPositions at = grid_positions(where, axial, positions, grid);
  const Places place = places(axial, at);
  Tensor out({grid.batch, grid.tokens, axial.dim()});
  look_up(axial.rows, place.row, 0, out);
  look_up(axial.columns, place.column, axial.rows.size(1), out);
  return out;
}

AxialGradients axial_positions_backward(View dout, const Axial& axial, const Positions& positions) {
  const FlushDenormals guard;  // whatever the caller rounds like, rapt rounds to nearest
  const char* where = "axial_positions_backward";
  check_axial(where, axial);
  check_token_gradient(where, dout);
  check(dout.size(2) == axial.dim(), where, ": dout has dim ", dout.size(2), ", expected ",
        axial.dim(), " (row and column concatenated)");
  const TokenGrid grid{dout.size(0), dout.size(1)};
  const TokenPositions at = grid_positions(where, axial, positions, grid);
  const Places place = places(axial, at);
  return {add_up(dout, place.row, 0, axial.rows.shape()),
          add_up(dout, place.column, axial.rows.size(1), axial.columns.shape())};
}

}  // namespace rapt
