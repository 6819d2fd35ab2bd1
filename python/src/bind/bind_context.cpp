#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "python/src/bind/bind.h"
#include "rapt/context.h"
#include "rapt/peak.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace rapt::python {

void bind_context(nb::module_& module) {
  nb::class_<Context>(module, "Context", nb::is_weak_referenceable(),
                      "Where a call runs: how many threads, which instruction set.")
      .def(nb::init<std::optional<Index>, std::optional<std::string_view>>(),
           "threads"_a = nb::none(), "isa"_a = nb::none(),
           "None stands for the defaults of the process.")
      .def_prop_ro("threads", &Context::threads)
      .def_prop_ro("isa", &Context::isa)
      .def("__reduce__",
           [](const Context& context) {
             return nb::make_tuple(nb::type<Context>(),
                                   nb::make_tuple(context.threads(), context.isa()));
           })
      .def("__repr__", [](const Context& context) {
        return "Context(threads=" + std::to_string(context.threads()) + ", isa=\"" + context.isa() +
               "\")";
      });
  module.def("version", &version);
  module.def("supported_isas", &supported_isas,
             "Instruction sets this build has and this CPU can run, best first.");
  module.def("usable_cpus", &usable_cpus, "CPUs this process may use.");
  module.def("why_no_amx", &why_no_amx, "Why this process cannot use AMX; None if it can.");
}

}  // namespace rapt::python
