#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/bind/bind.h"
#include "python/src/convert/call_options.h"
#include "python/src/convert/errors.h"
#include "python/src/convert/given_positions.h"
#include "python/src/convert/result_array.h"
#include "rapt/positions.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace rapt::python {
namespace {

Sinusoidal sinusoidal_of(Index dim, double base, const std::string& layout, bool inclusive) {
  Sinusoidal how{.dim = dim, .base = base};
  if (layout == "halves")
    how.layout = Sinusoidal::Layout::halves;
  else if (layout != "interleaved")
    wrong_value("sinusoidal: layout is \"", layout, "\", expected \"interleaved\" or \"halves\"");
  if (inclusive) how.frequencies = Sinusoidal::Frequencies::inclusive;
  return how;
}

Tensor sinusoidal_rows(nb::handle positions, Index dim, double base, const std::string& layout,
                       bool inclusive) {
  const Sinusoidal how = sinusoidal_of(dim, base, layout, inclusive);
  Index tokens = 0;
  if (nb::try_cast(positions, tokens)) return sinusoidal(how, 0, tokens);
  return sinusoidal(how, indices_of(positions, "sinusoidal: positions"));
}

/// `like` says which library answers: an array of the caller.
nb::object sinusoidal_array(nb::handle like, nb::handle positions, Index dim, nb::handle base,
                            const std::string& layout, bool inclusive) {
  const Array model(like, "sinusoidal: like");
  return ResultArray(model).array(
      sinusoidal_rows(positions, dim, number<double>(base, "sinusoidal: base"), layout, inclusive));
}

nb::object learned(nb::handle table, Index batch, Index tokens, nb::handle positions,
                   Index offset) {
  Array array(table, "learned_positions: table");
  const GivenPositions at(positions, 1);
  return ResultArray(array).array(
      learned_positions(array.floats(2), {batch, tokens}, at.get(), offset));
}

View gradient(Array& dout) {
  if (dout.rank() != 3) wrong_value("positions: dout is expected to be [batch, tokens, dim]");
  return dout.floats(3);
}

nb::object learned_backward(nb::handle dout, Index rows, nb::handle positions, Index offset) {
  Array array(dout, "learned_positions: dout");
  const GivenPositions at(positions, 1);
  return ResultArray(array).array(
      learned_positions_backward(gradient(array), rows, at.get(), offset));
}

Axial axial_of(Array& rows, Array& columns, bool column_major) {
  return {rows.floats(2), columns.floats(2),
          column_major ? Axial::Order::column_major : Axial::Order::row_major};
}

nb::object axial(nb::handle rows, nb::handle columns, Index batch, Index tokens,
                 nb::handle positions, bool column_major) {
  Array arrays[] = {{rows, "axial_positions: rows"}, {columns, "axial_positions: columns"}};
  const GivenPositions at(positions, 1);
  return ResultArray(arrays[0]).array(
      axial_positions(axial_of(arrays[0], arrays[1], column_major), {batch, tokens}, at.get()));
}

nb::tuple axial_backward(nb::handle dout, nb::handle rows, nb::handle columns, nb::handle positions,
                         bool column_major) {
  Array array(dout, "axial_positions: dout");
  Array tables[] = {{rows, "axial_positions: rows"}, {columns, "axial_positions: columns"}};
  const GivenPositions at(positions, 1);
  AxialGradients g = axial_positions_backward(
      gradient(array), axial_of(tables[0], tables[1], column_major), at.get());
  const ResultArray answer(tables[0]);
  return nb::make_tuple(answer.array(std::move(g.drows)), answer.array(std::move(g.dcolumns)));
}

}  // namespace

void bind_positions(nb::module_& module) {
  module.def("sinusoidal", &sinusoidal_array, "like"_a.none(), "positions"_a, "dim"_a, "base"_a,
             "layout"_a, "inclusive"_a);
  module.def("learned", &learned, "table"_a.none(), "batch"_a, "tokens"_a, "positions"_a.none(),
             "offset"_a);
  module.def("learned_backward", &learned_backward);
  module.def("axial", &axial, "rows"_a.none(), "columns"_a.none(), "batch"_a, "tokens"_a,
             "positions"_a.none(), "column_major"_a);
  module.def("axial_backward", &axial_backward);
}

}  // namespace rapt::python
