#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "python/src/bind.h"
#include "python/src/mistake.h"
#include "rapt/health.h"

namespace nb = nanobind;
using namespace nb::literals;

/// Its vector of heads looks as if it could be copied; maps cannot.
template <>
struct nanobind::detail::is_copy_constructible<rapt::ModelHealth> : std::false_type {};

namespace rapt::python {
namespace {

HealthText text_of(std::string text, std::string target, std::vector<std::int32_t> ids,
                   std::vector<std::int32_t> target_ids, Index limit) {
  return {std::move(text), std::move(target), std::move(ids), std::move(target_ids), limit};
}

ModelHealth examined(Pretrained& loaded, const HealthText& text, Index map, bool trials,
                     const Context& context) {
  HealthOptions options;
  options.map = map;
  options.trials = trials;
  options.progress = [](double, const std::string&) {
    const nb::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  };
  const nb::gil_scoped_release release;
  return examine(loaded, text, options, context);
}

nb::object map_of(const ModelHealth& health, Index layer, Index head) {
  if (layer < 0 || layer >= std::ssize(health.layers) || head < 0 || head >= health.heads_each)
    wrong_value("map: layer ", layer, " and head ", head, ", expected layers below ",
                health.layers.size(), " and heads below ", health.heads_each);
  const Tensor& map = health.heads[static_cast<std::size_t>(layer * health.heads_each + head)].map;
  if (map.empty()) wrong_value("map: none was made, expected inspect(..., maps=True)");
  auto* copy = new Tensor(map.clone());
  const nb::capsule owner(copy, [](void* p) noexcept { delete static_cast<Tensor*>(p); });
  const auto side = static_cast<std::size_t>(map.shape()[0]);
  return nb::ndarray<nb::numpy, float>(copy->data(), {side, side}, owner).cast();
}

}  // namespace

void bind_health(nb::module_& module) {
  nb::class_<HealthText>(module, "HealthText");
  module.def("health_text", &text_of);
  nb::class_<ModelHealth>(module, "ModelHealth")
      .def_rw("model", &ModelHealth::model)
      .def_ro("map_tile", &ModelHealth::map_tile)
      .def("json", &health_json)
      .def("html", &health_html)
      .def("map", &map_of, "layer"_a, "head"_a);
  module.def("examine", &examined);
}

}  // namespace rapt::python
