#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "python/src/bind/bind.h"
#include "python/src/convert/call_options.h"
#include "python/src/convert/errors.h"
#include "rapt/lsh.h"
#include "rapt/pattern.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace rapt::python {
namespace {

std::vector<std::pair<Index, Index>> keys_of(const Pattern& pattern, Index query, Index queries,
                                             Index keys) {
  std::vector<std::pair<Index, Index>> ranges;
  for (const Range range : pattern.keys_of(query, {queries, keys}))
    ranges.emplace_back(range.begin, range.end);
  return ranges;
}

Pattern mask_of(nb::handle given) {
  const Array array(given, "mask");
  if (array.rank() != 2)
    wrong_value("mask has ", array.rank(), " axes, expected 2: [queries, keys]");
  std::unique_ptr<bool[]> buffer;
  return mask(array.booleans(buffer), array.size(0), array.size(1));
}

Pattern documents_of(nb::handle lengths, nb::handle key_lengths) {
  if (key_lengths.is_none()) return documents(indices_of(lengths, "documents: lengths"));
  return documents(indices_of(lengths, "documents: lengths"),
                   indices_of(key_lengths, "documents: key_lengths"));
}

Pattern lsh_of(Index chunk, Index rounds, std::vector<Index> buckets, std::uint64_t seed,
               Index before, Index after, bool shared, bool once) {
  return lsh({.chunk = chunk,
              .rounds = rounds,
              .buckets = std::move(buckets),
              .seed = seed,
              .before = before,
              .after = after,
              .keys = shared ? Lsh::Keys::shared : Lsh::Keys::separate,
              .duplicates = once ? Lsh::Duplicates::once : Lsh::Duplicates::keep});
}

void bind_class(nb::module_& module) {
  // torch.compile tells an argument from a later one at the same address by a weak reference.
  nb::class_<Pattern>(module, "Pattern", nb::is_weak_referenceable(),
                      "Which keys each query sees: a set of (query, key) pairs, joined by & and |.")
      .def(
          "__init__",
          [](Pattern* self, nb::object given) { new (self) Pattern(pattern_of(given)); },
          "text"_a = nb::none(), "From its text form, as in \"window(512, 0) | tokens({0})\".")
      .def("keys_of", &keys_of, "query"_a, "queries"_a, "keys"_a,
           "The keys that a query sees, as sorted (begin, end) pairs.")
      .def(
          "check",
          [](const Pattern& self, Index queries, Index keys) {
            self.check({queries, keys});
          },
          "queries"_a, "keys"_a, "ValueError if the pattern does not fit these lengths.")
      .def(
          "__and__", [](const Pattern& a, nb::object b) { return a & pattern_of(b); }, "other"_a)
      .def(
          "__or__", [](const Pattern& a, nb::object b) { return a | pattern_of(b); }, "other"_a)
      .def(
          "__rand__", [](const Pattern& b, nb::object a) { return pattern_of(a) & b; }, "other"_a)
      .def(
          "__ror__", [](const Pattern& b, nb::object a) { return pattern_of(a) | b; }, "other"_a)
      .def(
          "__eq__", [](const Pattern& a, const Pattern& b) { return a == b; }, nb::is_operator(),
          nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__",
           [](const Pattern& self) { return std::hash<std::string>()(to_string(self)); })
      .def("__str__", [](const Pattern& self) { return to_string(self); })
      .def("__repr__", [](const Pattern& self) { return "Pattern(\"" + to_string(self) + "\")"; })
      .def("__reduce__",
           [](nb::object self) {
             return nb::make_tuple(nb::type<Pattern>(), nb::make_tuple(nb::str(self)));
           })
      .def_prop_ro(
          "has_lsh", [](const Pattern& self) { return lsh_part(self).has_value(); },
          "Whether the keys that a query sees depend on the values of the operands.");
}

void bind_leaves(nb::module_& module) {
  module.def("full", &full, "Every query sees every key.");
  module.def(
      "causal", [](const std::string& align) { return causal(from_string<Align>(align)); },
      "align"_a = "last", "Keys at or before the query's position.");
  module.def(
      "window",
      [](Index left, Index right, const std::string& align) {
        return window(left, right, from_string<Align>(align));
      },
      "left"_a, "right"_a, "align"_a = "last",
      "Keys from `left` before to `right` after the query's position, both ends included.");
  module.def(
      "tokens", [](nb::object at) { return tokens(indices_of(at, "tokens: positions")); },
      "positions"_a, "Global tokens: every query sees them, and they see every key.");
  module.def("prefix", &prefix, "n"_a, "The first n positions see each other.");
  module.def("documents", &documents_of, "lengths"_a, "key_lengths"_a = nb::none(),
             "Packed sequences: a query sees the keys of its own document.");
  module.def("blocks", &blocks, "size"_a, "table"_a,
             "Block-sparse: query block r sees the key blocks table[r].");
  module.def("keys", &keys, "n"_a, "Only the first n keys exist; the rest is padding.");
  module.def(
      "chunks", &chunks, "size"_a, "before"_a, "after"_a,
      "Reformer's local attention: a query sees its own chunk and its neighbours, in a ring.");
  module.def("dilated", &dilated, "step"_a, "left"_a, "right"_a,
             "Every step-th key around the query.");
  module.def("mask", &mask_of, "may_see"_a.none(),
             "A dense boolean mask [queries, keys], true = visible, converted into ranges once.");
  module.def("lsh", &lsh_of, "chunk"_a = 64, "rounds"_a = 1, "buckets"_a = std::vector<Index>{},
             "seed"_a = 0, "before"_a = 1, "after"_a = 0, "shared"_a = true, "once"_a = false,
             "Reformer's hashed attention as a pattern, which & joins with others.");
  module.def("lsh_buckets", &lsh_buckets, "tokens"_a, "chunk"_a,
             "The factors that empty `buckets` mean at this length.");
}

}  // namespace

void bind_pattern(nb::module_& module) {
  bind_class(module);
  bind_leaves(module);
}

}  // namespace rapt::python
