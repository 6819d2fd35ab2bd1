#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/check.h"
#include "base/indexed_vector.h"
#include "rapt/plan.h"

namespace rapt {
using namespace detail;

namespace {

/// Divides `tiles` tiles into `cells` cells whose sizes differ by one at most. A cell may be
/// smaller than a tile: then neighbours show the same one.
struct Axis {
  Index tiles;
  Index cells;

  Index begin(Index cell) const { return tiles * cell / cells; }
  Index end(Index cell) const { return std::max(begin(cell) + 1, begin(cell + 1)); }
};

struct Canvas {
  Axis rows;
  Axis columns;
};

/// A character is twice as high as wide, so a tile is drawn two characters wide, or two query tiles
/// share a line where that is too wide.
Canvas canvas_for(Index query_tiles, Index key_tiles, Index columns) {
  const Index longest = std::max(query_tiles, key_tiles);
  if (longest <= columns / 2) return {{query_tiles, query_tiles}, {key_tiles, 2 * key_tiles}};
  const double tiles_per_column =
      std::max(1.0, static_cast<double>(longest) / static_cast<double>(columns));
  const auto cells = [](Index tiles, double tiles_per_cell) {
    const Index rounded = std::llround(static_cast<double>(tiles) / tiles_per_cell);
    return std::clamp<Index>(rounded, 1, tiles);
  };
  return {{query_tiles, cells(query_tiles, 2 * tiles_per_column)},
          {key_tiles, cells(key_tiles, tiles_per_column)}};
}

struct Cell {
  Index whole = 0;
  Index masked = 0;
};

/// Adds the part of a run that is in each cell.
void add_run(const Visit& run, const Axis& columns, IndexedVector<Cell>& cells) {
  const Index run_end = Index{run.first} + run.count;
  Index at = run.first * columns.cells / columns.tiles;  // no earlier cell reaches the run
  for (; at < columns.cells && columns.begin(at) < run_end; ++at) {
    const Index shared =
        std::min(run_end, columns.end(at)) - std::max<Index>(run.first, columns.begin(at));
    Cell& cell = cells[at];
    (run.mask == Visit::whole ? cell.whole : cell.masked) += std::max<Index>(0, shared);
  }
}

std::string_view character(const Cell& cell, Index tiles) {
  if (cell.whole == tiles) return "█";
  return cell.whole + cell.masked > 0 ? "▒" : "·";
}

}  // namespace

std::string Plan::drawing(Index columns) const {
  check(columns >= 1, "plan: a drawing ", columns, " columns wide asked for, expected 1 or more");
  if (query_tiles() == 0 || key_tiles() == 0) return {};
  const Canvas canvas = canvas_for(query_tiles(), key_tiles(), columns);
  std::string picture;
  for (Index line = 0; line < canvas.rows.cells; ++line) {
    IndexedVector<Cell> cells(canvas.columns.cells);
    for (Index row = canvas.rows.begin(line); row < canvas.rows.end(line); ++row)
      for (const Visit& run : visits(row)) add_run(run, canvas.columns, cells);
    const Index height = canvas.rows.end(line) - canvas.rows.begin(line);
    for (Index at = 0; at < canvas.columns.cells; ++at)
      picture += character(cells[at], height * (canvas.columns.end(at) - canvas.columns.begin(at)));
    picture += '\n';
  }
  return picture;
}

}  // namespace rapt
