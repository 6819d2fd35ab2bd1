#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "python/src/bind/bind.h"
#include "python/src/convert/attended_tuple.h"
#include "python/src/convert/call_options.h"
#include "python/src/convert/errors.h"
#include "python/src/convert/result_array.h"
#include "rapt/attention.h"
#include "rapt/lsh_recall.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace rapt::python {
namespace {

/// Row-major in the caller's layout.
Shape out_shape(const AnyView& q, const AnyView& v, Layout layout) {
  if (layout == Layout::bhld) return {q.batch(), q.heads(), q.tokens(), v.dim()};
  return {q.batch(), q.tokens(), q.heads(), v.dim()};
}

nb::object attend_arrays(nb::handle q, nb::handle k, nb::handle v, nb::tuple options,
                         nb::handle layout_name, int wanted) {
  Array arrays[] = {{q, "attend: q"}, {k, "attend: k"}, {v, "attend: v"}};
  const Layout layout = layout_of(layout_name);
  const AnyView views[] = {laid_out(arrays[0].operand(), layout),
                           laid_out(arrays[1].operand(), layout),
                           laid_out(arrays[2].operand(), layout)};
  CallOptions how(options);
  how.attention().stats = (wanted & want_stats) != 0;
  how.attention().gradients = (wanted & want_rows) != 0;
  OutputArray out(arrays[0], out_shape(views[0], views[2], layout), views[0].type());
  const AnyMutableView into = laid_out(out.view(), layout);
  Attended attended;
  {
    const nb::gil_scoped_release release;
    attended = attend_into(into, views[0], views[1], views[2], how.attention(), how.context());
  }
  return attended_tuple(ResultArray(arrays[0]), out.take(), std::move(attended), wanted, layout);
}

/// A gradient as its operand is shaped, row-major in the caller's layout.
OutputArray gradient_output(const Array& like, const AnyView& operand, Layout layout) {
  return {like, out_shape(operand, operand, layout), operand.type()};
}

nb::tuple attend_backward_arrays(nb::handle dout, nb::handle q, nb::handle k, nb::handle v,
                                 nb::handle out, nb::tuple rows, nb::tuple options,
                                 nb::handle layout_name, nb::handle dlse) {
  Array arrays[] = {{dout, "attend_backward: dout"},
                    {q, "attend_backward: q"},
                    {k, "attend_backward: k"},
                    {v, "attend_backward: v"},
                    {out, "attend_backward: out"}};
  const Layout layout = layout_of(layout_name);
  const CallOptions how(options);
  std::optional<Array> of_lse;
  if (!dlse.is_none()) of_lse.emplace(dlse, "attend_backward: dlse");
  AnyView views[5];
  for (int i = 0; i < 5; ++i) views[i] = laid_out(arrays[i].operand(), layout);
  const Rows of_rows = rows_of(rows, "attend_backward");
  OutputArray dq = gradient_output(arrays[1], views[1], layout);
  OutputArray dk = gradient_output(arrays[1], views[2], layout);
  OutputArray dv = gradient_output(arrays[1], views[3], layout);
  const GradientViews to{laid_out(dq.view(), layout), laid_out(dk.view(), layout),
                         laid_out(dv.view(), layout)};
  const View slopes = of_lse ? of_lse->floats(3) : View();
  Gradients g;
  {
    const nb::gil_scoped_release release;
    g = attend_backward_into(to, {views[0], slopes}, views[1], views[2], views[3],
                             {views[4], of_rows}, how.attention(), how.context());
  }
  const ResultArray answer(arrays[1]);
  return nb::make_tuple(
      dq.take(), dk.take(), dv.take(), answer.array_or_none(std::move(g.dslopes)),
      answer.array_or_none(std::move(g.dkerple)), answer.array_or_none(std::move(g.dtable)),
      answer.array_or_none(std::move(g.drelative_keys)),
      answer.array_or_none(std::move(g.drelative_values)),
      answer.array_or_none(std::move(g.ddense)), answer.array_or_none(std::move(g.dsinks)));
}

std::string explain_shapes(const std::vector<Index>& q, const std::vector<Index>& k,
                           const std::vector<Index>& v, nb::tuple options,
                           const std::string& type) {
  const CallOptions how(options);
  return explain(shape_of(q, "q"), shape_of(k, "k"), shape_of(v, "v"), how.attention(),
                 from_string<Type>(type), how.context());
}

nb::tuple recall(nb::handle q, nb::handle k, nb::tuple options, nb::handle layout_name, Index top,
                 std::optional<Index> queries) {
  Array arrays[] = {{q, "lsh_recall: q"}, {k, "lsh_recall: k"}};
  const Layout layout = layout_of(layout_name);
  const AnyView views[] = {laid_out(arrays[0].operand(), layout),
                           laid_out(arrays[1].operand(), layout)};
  const CallOptions how(options);
  LshRecall found;
  {
    const nb::gil_scoped_release release;
    found = lsh_recall(views[0], views[1], how.attention(), {.top = top, .queries = queries},
                       how.context());
  }
  return nb::make_tuple(found.top, found.mass, found.keys, found.queries);
}

void bind_scale(nb::module_& module) {
  nb::class_<Scale>(module, "Scale", nb::is_weak_referenceable(), "What multiplies q.k.")
      .def_static("inverse_sqrt_dim", &Scale::inverse_sqrt_dim)
      .def_static("inverse_dim", &Scale::inverse_dim)
      .def_static("none", &Scale::none)
      .def_static(
          "value",
          [](nb::handle factor) {
            return Scale::value(number<double>(factor, "Scale.value: factor"));
          },
          nb::arg("factor").none())
      .def_static(
          "log_n",
          [](nb::handle base) { return Scale::log_n(number<double>(base, "Scale.log_n: base")); },
          "base"_a = 512, "log_base(n) / sqrt(dim), n being the number of keys this query sees.")
      .def_prop_ro("rule", [](const Scale& scale) { return static_cast<int>(scale.rule); })
      .def_ro("number", &Scale::number)
      .def("__getstate__",
           [](const Scale& scale) {
             return std::make_tuple(static_cast<int>(scale.rule), scale.number);
           })
      .def("__setstate__",
           [](Scale& scale, const std::tuple<int, double>& state) {
             new (&scale) Scale{static_cast<Scale::Rule>(std::get<0>(state)), std::get<1>(state)};
           })
      .def_static("from_rule", [](int rule, double number) {
        return Scale{static_cast<Scale::Rule>(rule), number};
      });
}

}  // namespace

void bind_attention(nb::module_& module) {
  bind_scale(module);
  module.def("attend", &attend_arrays, nb::arg("q").none(), nb::arg("k").none(),
             nb::arg("v").none(), nb::arg("how"), nb::arg("layout"), nb::arg("wanted"));
  module.def("attend_backward", &attend_backward_arrays, nb::arg("dout").none(),
             nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(), nb::arg("out").none(),
             nb::arg("rows"), nb::arg("how"), nb::arg("layout"), nb::arg("dlse") = nb::none());
  module.def("explain", &explain_shapes);
  module.def("lsh_recall", &recall, "q"_a.none(), "k"_a.none(), "how"_a, "layout"_a, "top"_a,
             "queries"_a);
  module.def("scale_of", &scale_of, nb::arg("scale").none());
  module.def(
      "alibi_slopes", [](Index heads) { return alibi(heads).alibi->slopes; }, "heads"_a,
      "The published slopes for any number of heads.");
  module.def(
      "t5_bucket",
      [](Index relative, Index buckets, Index max_distance, bool past) {
        return t5_bucket(relative, buckets, max_distance,
                         past ? RelativeTable::Direction::past : RelativeTable::Direction::both);
      },
      "relative"_a, "buckets"_a = 32, "max_distance"_a = 128, "past"_a = false,
      "T5's bucket of a relative position (key minus query).");
}

}  // namespace rapt::python
