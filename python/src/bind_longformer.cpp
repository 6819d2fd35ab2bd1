#include <nanobind/stl/vector.h>

#include <algorithm>
#include <list>
#include <optional>

#include "python/src/answer.h"
#include "python/src/bind.h"
#include "python/src/how.h"
#include "python/src/mistake.h"
#include "python/src/parts.h"
#include "rapt/longformer.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace rapt::python {
namespace {

/// (window, dilation, causal, scale, dropout, seed, classes, context)
class LongformerHow {
 public:
  explicit LongformerHow(nb::tuple options) {
    if (options.size() != 8) wrong_value("longformer options: wrong number of fields");
    how.window = number<Index>(options[0], "longformer: window");
    if (!options[1].is_none()) how.dilation = indices_of(options[1], "longformer: dilation");
    how.causal = nb::cast<bool>(options[2]);
    how.scale = scale_of(options[3]);
    how.dropout = {number<double>(options[4], "longformer: dropout"),
                   number<std::uint64_t>(options[5], "longformer: seed")};
    if (!options[6].is_none()) take_classes(indices_of(options[6], "longformer: classes"));
    context = context_of(options[7]);
  }

  Longformer how;
  Context context;

 private:
  void take_classes(const std::vector<Index>& numbers) {
    for (const Index number : numbers) {
      if (number < 0 || number > 2)
        wrong_value("longformer: classes hold ", number,
                    ", expected 0 (padding), 1 (local) or 2 (global)");
      how.classes.push_back(static_cast<TokenClass>(number));
    }
  }
};

/// Three or six arrays: q, k, v and the global projections.
class Projections {
 public:
  Projections(nb::tuple given, Layout layout) {
    static const char* names[] = {"longformer: q",        "longformer: k",
                                  "longformer: v",        "longformer: q_global",
                                  "longformer: k_global", "longformer: v_global"};
    if (given.size() != 6) wrong_value("longformer: expected six operands");
    AnyView* views[] = {&operands.q,        &operands.k,        &operands.v,
                        &operands.q_global, &operands.k_global, &operands.v_global};
    for (std::size_t i = 0; i < 6; ++i) {
      if (i >= 3 && given[i].is_none()) continue;
      arrays_.emplace_back(given[i], names[i]);
      *views[i] = laid_out(arrays_.back().operand(), layout);
    }
  }

  const Array& q() const { return arrays_.front(); }

  LongformerOperands operands;

 private:
  std::list<Array> arrays_;
};

/// A result as its operand is shaped, row-major in the caller's layout.
Room room_of(const Array& like, const AnyView& operand, Layout layout) {
  Shape shape = operand.shape();
  if (layout == Layout::blhd) std::swap(shape[1], shape[2]);
  return {like, shape, operand.type()};
}

nb::tuple forward(nb::tuple given, nb::tuple options, nb::handle layout_name) {
  const Layout layout = layout_of(layout_name);
  const Projections projections(given, layout);
  const LongformerHow longformer(options);
  Room out = room_of(projections.q(), projections.operands.q, layout);
  const AnyMutableView into = laid_out(out.view(), layout);
  LongformerAttended y;
  {
    const nb::gil_scoped_release release;
    y = attend_into(into, projections.operands, longformer.how, longformer.context);
  }
  const Answer answer(projections.q());
  const auto all = [](const auto& numbers) { return Shape{static_cast<Index>(numbers.size())}; };
  const Shape local = all(y.local.max), global = all(y.global.max);
  return with_unrounded(answer,
                        nb::make_tuple(out.take(), answer.array(std::move(y.local.max), local),
                                       answer.array(std::move(y.local.sum), local),
                                       answer.array(std::move(y.global.max), global),
                                       answer.array(std::move(y.global.sum), global)),
                        y.local, layout);
}

/// `kept`: out and what forward returned after it.
nb::tuple backward(nb::handle dout, nb::tuple given, nb::tuple kept, nb::tuple options,
                   nb::handle layout_name) {
  if (kept.size() != 5)
    wrong_value("longformer_backward: rows has ", kept.size() - 1,
                " parts, expected 4 of longformer");
  const Layout layout = layout_of(layout_name);
  Array dout_array(dout, "longformer: dout");
  Array out_array(unrounded(kept, 5, kept[0]), "longformer: out");
  const Projections projections(given, layout);
  const LongformerHow longformer(options);
  const Rows local = rows_of(nb::make_tuple(kept[1], kept[2]), "longformer");
  const Rows global = rows_of(nb::make_tuple(kept[3], kept[4]), "longformer");
  const AnyView out = laid_out(out_array.operand(), layout);
  const AnyView dout_view = laid_out(dout_array.operand(), layout);
  const std::vector<TokenClass>& classes = longformer.how.classes;
  const bool any_global = std::count(classes.begin(), classes.end(), TokenClass::global) > 0;
  const LongformerOperands& o = projections.operands;
  const AnyView* of[] = {&o.q, &o.k, &o.v, &o.q_global, &o.k_global, &o.v_global};
  LongformerGradientViews to;
  AnyMutableView* views[] = {&to.dq, &to.dk, &to.dv, &to.dq_global, &to.dk_global, &to.dv_global};
  std::list<Room> rooms;
  for (std::size_t i = 0; i < (any_global ? 6 : 3); ++i)
    *views[i] =
        laid_out(rooms.emplace_back(room_of(projections.q(), *of[i], layout)).view(), layout);
  {
    const nb::gil_scoped_release release;
    attend_backward_into(to, dout_view, o, LongformerOutcome(out, local, global), longformer.how,
                         longformer.context);
  }
  nb::list found;
  for (Room& room : rooms) found.append(room.take());
  while (nb::len(found) < 6) found.append(nb::none());
  return nb::tuple(found);
}

}  // namespace

void bind_longformer(nb::module_& module) {
  module.def("longformer", &forward);
  module.def("longformer_backward", &backward, nb::arg("dout").none(), nb::arg("operands"),
             nb::arg("kept"), nb::arg("options"), nb::arg("layout"));
}

}  // namespace rapt::python
