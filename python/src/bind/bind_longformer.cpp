#include <nanobind/stl/vector.h>

#include <algorithm>
#include <list>
#include <optional>

#include "python/src/bind/bind.h"
#include "python/src/convert/attended_tuple.h"
#include "python/src/convert/call_options.h"
#include "python/src/convert/errors.h"
#include "python/src/convert/result_array.h"
#include "rapt/longformer.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace rapt::python {
namespace {

/// (window, dilation, causal, scale, dropout, seed, classes, context)
class LongformerHow {
 public:
  explicit LongformerHow(nb::tuple options) {
    if (options.size() != 8) wrong_value("attend_longformer options: wrong number of fields");
    how.window = number<Index>(options[0], "attend_longformer: window");
    if (!options[1].is_none()) how.dilation = indices_of(options[1], "attend_longformer: dilation");
    how.causal = nb::cast<bool>(options[2]);
    how.scale = scale_of(options[3]);
    how.dropout = {number<double>(options[4], "attend_longformer: dropout"),
                   number<std::uint64_t>(options[5], "attend_longformer: seed")};
    if (!options[6].is_none()) take_classes(indices_of(options[6], "attend_longformer: classes"));
    context = context_of(options[7]);
  }

  Longformer how;
  Context context;

 private:
  void take_classes(const std::vector<Index>& numbers) {
    for (const Index number : numbers) {
      if (number < 0 || number > 2)
        wrong_value("attend_longformer: classes hold ", number,
                    ", expected 0 (padding), 1 (local) or 2 (global)");
      how.classes.push_back(static_cast<TokenClass>(number));
    }
  }
};

/// Three or six arrays: q, k, v and the global projections.
class Projections {
 public:
  Projections(nb::tuple given, Layout layout) {
    static const char* names[] = {"attend_longformer: q",        "attend_longformer: k",
                                  "attend_longformer: v",        "attend_longformer: q_global",
                                  "attend_longformer: k_global", "attend_longformer: v_global"};
    if (given.size() != 6) wrong_value("attend_longformer: expected six operands");
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
OutputArray output_like(const Array& like, const AnyView& operand, Layout layout) {
  Shape shape = operand.shape();
  if (layout == Layout::blhd) std::swap(shape[1], shape[2]);
  return {like, shape, operand.type()};
}

nb::tuple forward(nb::tuple given, nb::tuple options, nb::handle layout_name) {
  const Layout layout = layout_of(layout_name);
  const Projections projections(given, layout);
  const LongformerHow longformer(options);
  OutputArray out = output_like(projections.q(), projections.operands.q, layout);
  const AnyMutableView into = laid_out(out.view(), layout);
  Attended y;
  {
    const nb::gil_scoped_release release;
    y = attend_longformer_into(into, projections.operands, longformer.how, longformer.context);
  }
  const ResultArray answer(projections.q());
  const auto rows = [&answer](Rows& of) {
    const Shape all{static_cast<Index>(of.max.size())};
    return nb::make_tuple(answer.array(std::move(of.max), all),
                          answer.array(std::move(of.sum), all));
  };
  const nb::tuple all_rows = with_unrounded(answer, rows(y.rows), y.rows, layout);
  return nb::make_tuple(out.take(), nb::none(), all_rows, rows(y.global_rows));
}

/// `kept`: the unrounded output, then max and sum of all rows, then those of the global ones.
nb::tuple backward(nb::handle dout, nb::tuple given, nb::tuple kept, nb::tuple options,
                   nb::handle layout_name) {
  if (kept.size() != 5)
    wrong_value("attend_longformer_backward: kept has ", kept.size(),
                " parts, expected (out, max, sum, global max, global sum)");
  const Layout layout = layout_of(layout_name);
  Array dout_array(dout, "attend_longformer: dout");
  Array out_array(kept[0], "attend_longformer: out");
  const Projections projections(given, layout);
  const LongformerHow longformer(options);
  const Rows local = rows_of(nb::make_tuple(kept[1], kept[2]), "attend_longformer");
  const Rows global = rows_of(nb::make_tuple(kept[3], kept[4]), "attend_longformer");
  const AnyView out = laid_out(out_array.operand(), layout);
  const AnyView dout_view = laid_out(dout_array.operand(), layout);
  const std::vector<TokenClass>& classes = longformer.how.classes;
  const bool any_global = std::count(classes.begin(), classes.end(), TokenClass::global) > 0;
  const LongformerOperands& o = projections.operands;
  const AnyView* of[] = {&o.q, &o.k, &o.v, &o.q_global, &o.k_global, &o.v_global};
  LongformerGradientViews to;
  AnyMutableView* views[] = {&to.dq, &to.dk, &to.dv, &to.dq_global, &to.dk_global, &to.dv_global};
  std::list<OutputArray> outputs;
  for (std::size_t i = 0; i < (any_global ? 6 : 3); ++i)
    *views[i] =
        laid_out(outputs.emplace_back(output_like(projections.q(), *of[i], layout)).view(), layout);
  {
    const nb::gil_scoped_release release;
    attend_longformer_backward_into(to, dout_view, o, AttendedView(out, local, global),
                                    longformer.how, longformer.context);
  }
  nb::list found;
  for (OutputArray& output : outputs) found.append(output.take());
  while (nb::len(found) < 6) found.append(nb::none());
  return nb::tuple(found);
}

}  // namespace

void bind_longformer(nb::module_& module) {
  module.def("attend_longformer", &forward);
  module.def("attend_longformer_backward", &backward, nb::arg("dout").none(), nb::arg("operands"),
             nb::arg("kept"), nb::arg("options"), nb::arg("layout"));
}

}  // namespace rapt::python
