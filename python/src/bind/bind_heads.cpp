#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "python/src/bind/bind.h"
#include "python/src/convert/errors.h"
#include "rapt/models/heads.h"

namespace nb = nanobind;
using namespace nb::literals;

/// std::vector claims to be copyable, but the maps of heads are not.
template <>
struct nanobind::detail::is_copy_constructible<rapt::HeadReport> : std::false_type {};

namespace rapt::python {
namespace {

HeadReportText text_of(std::string text, std::string target, std::vector<std::int32_t> ids,
                       std::vector<std::int32_t> target_ids, std::optional<Index> limit) {
  return {std::move(text), std::move(target), std::move(ids), std::move(target_ids), limit};
}

HeadReport report_on(Pretrained& loaded, const HeadReportText& text, std::optional<Index> map_size,
                     bool trials, const Context& context) {
  HeadReportOptions options;
  options.map_size = map_size;
  options.trials = trials;
  options.progress = [](double, const std::string&) {
    const nb::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  };
  const nb::gil_scoped_release release;
  return heads(loaded, text, options, context);
}

nb::object map_of(const HeadReport& report, Index layer, Index head) {
  if (layer < 0 || layer >= std::ssize(report.layers) || head < 0 || head >= report.heads_per_layer)
    wrong_value("map: layer ", layer, " and head ", head, ", expected layers below ",
                report.layers.size(), " and heads below ", report.heads_per_layer);
  const Tensor& map = report.heads.data()[layer * report.heads_per_layer + head].map;
  if (map.empty()) wrong_value("map: none was made, expected heads(..., maps=True)");
  auto* copy = new Tensor(map.clone());
  const nb::capsule owner(copy, [](void* p) noexcept { delete static_cast<Tensor*>(p); });
  const auto side = static_cast<std::size_t>(map.shape()[0]);
  return nb::ndarray<nb::numpy, float>(copy->data(), {side, side}, owner).cast();
}

}  // namespace

void bind_heads(nb::module_& module) {
  nb::class_<HeadReportText>(module, "HeadReportText");
  module.def("head_report_text", &text_of, "text"_a, "target"_a, "ids"_a, "target_ids"_a,
             "limit"_a.none());
  nb::class_<HeadReport>(module, "HeadReport")
      .def_rw("model", &HeadReport::model)
      .def_ro("map_tile", &HeadReport::map_tile)
      .def("json", [](const HeadReport& self) { return to_json(self); })
      .def("html", [](const HeadReport& self) { return to_html(self); })
      .def("map", &map_of, "layer"_a, "head"_a);
  module.def("heads", &report_on, "model"_a, "text"_a, "map_size"_a.none(), "trials"_a,
             "context"_a);
}

}  // namespace rapt::python
