#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/bind/bind.h"
#include "rapt/models/lab.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace rapt::python {
namespace {

std::pair<std::string, std::string> report(const std::vector<std::string>& experiments,
                                           std::uint64_t seed, nb::object progress,
                                           const Context& context) {
  LabOptions options;
  options.experiments = experiments;
  options.seed = seed;
  options.progress = [&](double done, const std::string& what) {
    const nb::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (!progress.is_none()) progress(done, what);
  };
  options.command = [seed](const std::string& experiment) {
    const std::string more = seed == 1 ? "" : ", seed=" + std::to_string(seed);
    return "rapt.lab.report(\"" + experiment + "\"" + more + ")";
  };
  const nb::gil_scoped_release release;
  LabReport made = run_lab(options, context);
  return {std::move(made.html), std::move(made.json)};
}

}  // namespace

void bind_lab(nb::module_& module) {
  module.def("lab_report", &report, "experiments"_a, "seed"_a, "progress"_a.none(), "context"_a,
             "The page and the JSON of a report.");
  module.def(
      "lab_experiments",
      [] {
        nb::dict titles;
        for (const LabExperiment& experiment : lab_experiments())
          titles[experiment.name.c_str()] = experiment.title;
        return titles;
      },
      "Names to the questions they answer.");
}

}  // namespace rapt::python
