#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "python/src/bind/bind.h"
#include "python/src/convert/call_options.h"
#include "rapt/plan.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace rapt::python {
namespace {

using Run = std::tuple<Index, Index, bool>;

std::vector<Run> visits_of(const Plan& plan, Index query_tile) {
  std::vector<Run> runs;
  for (const Visit& visit : plan.visits(query_tile))
    runs.emplace_back(visit.first, visit.count, visit.mask == Visit::whole);
  return runs;
}

}  // namespace

void bind_plan(nb::module_& module) {
  nb::class_<Plan>(module, "Plan", nb::is_weak_referenceable(),
                   "A pattern compiled for given lengths: the tiles of 64 x 64 pairs that are "
                   "computed. Share it between calls by passing it as their pattern.")
      .def(
          "__init__",
          [](Plan* self, nb::object pattern, Index queries, nb::object keys) {
            const Index count = keys.is_none() ? queries : number<Index>(keys, "Plan: keys");
            new (self) Plan(pattern_of(pattern), {queries, count});
          },
          "pattern"_a, "queries"_a, "keys"_a = nb::none(),
          "As many keys as queries if none are given.")
      .def_prop_ro("pattern", &Plan::pattern)
      .def_prop_ro("queries", [](const Plan& plan) { return plan.lengths().queries; })
      .def_prop_ro("keys", [](const Plan& plan) { return plan.lengths().keys; })
      .def_prop_ro("query_tiles", &Plan::query_tiles)
      .def_prop_ro("key_tiles", &Plan::key_tiles)
      .def_prop_ro(
          "pairs", [](const Plan& plan) { return plan.pairs(); }, "Allowed (query, key) pairs.")
      .def_prop_ro("whole_tiles", &Plan::whole_tiles)
      .def_prop_ro("masked_tiles", &Plan::masked_tiles)
      .def_prop_ro("bytes", &Plan::bytes)
      .def_ro_static("tile", &Plan::tile)
      .def("visits", &visits_of, "query_tile"_a,
           "Runs of key tiles as (first, count, whole), in ascending order.")
      .def("keys_seen", &Plan::keys_seen, "query"_a, "Keys that the query sees.")
      .def("drawing", &Plan::drawing, "columns"_a = 32, "A picture of characters.");
}

}  // namespace rapt::python
