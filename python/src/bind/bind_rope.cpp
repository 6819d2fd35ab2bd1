#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "python/src/bind/bind.h"
#include "python/src/convert/call_options.h"
#include "python/src/convert/errors.h"
#include "python/src/convert/given_positions.h"
#include "python/src/convert/result_array.h"
#include "rapt/rope.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace rapt::python {
namespace {

/// (class, arguments), by which pickle and copy make an equal one.
template <class T, class... Fields>
nb::tuple recipe(const Fields&... fields) {
  return nb::make_tuple(nb::type<T>(), nb::make_tuple(fields...));
}

std::optional<double> number_or_none(nb::handle given, const char* name) {
  if (given.is_none()) return std::nullopt;
  return number<double>(given, name);
}

std::vector<double> factors_of(nb::handle given, const char* name) {
  refuse_tensor(given, name);
  std::vector<double> factors;
  if (!nb::isinstance<nb::iterable>(given))
    wrong_type(name, " is ", nb::repr(given).c_str(), ", expected a list of numbers");
  for (const nb::handle each : given) factors.push_back(number<double>(each, name));
  return factors;
}

void bind_yarn(nb::module_& module) {
  nb::class_<YarnRope>(module, "YarnRope", nb::is_weak_referenceable(), "YaRN.")
      .def(
          "__init__",
          [](YarnRope* self, nb::handle factor, Index trained, nb::handle fast, nb::handle slow,
             nb::handle mscale, nb::handle mscale_all_dim, bool truncate,
             nb::handle attention_factor) {
            new (self) YarnRope{number<double>(factor, "YarnRope: factor"),
                                trained,
                                number<double>(fast, "YarnRope: fast"),
                                number<double>(slow, "YarnRope: slow"),
                                number_or_none(mscale, "YarnRope: mscale"),
                                number_or_none(mscale_all_dim, "YarnRope: mscale_all_dim"),
                                truncate,
                                number_or_none(attention_factor, "YarnRope: attention_factor")};
          },
          "factor"_a, "trained_tokens"_a = 4096, "fast"_a = 32, "slow"_a = 1,
          "mscale"_a = nb::none(), "mscale_all_dim"_a = nb::none(), "truncate"_a = true,
          "attention_factor"_a = nb::none())
      .def("__reduce__", [](const YarnRope& s) {
        return recipe<YarnRope>(s.factor, s.trained_tokens, s.fast, s.slow, s.mscale,
                                s.mscale_all_dim, s.truncate, s.attention_factor);
      });
}

void bind_long(nb::module_& module) {
  nb::class_<LongRope>(module, "LongRope", nb::is_weak_referenceable(),
                       "LongRoPE: a divisor for every pair.")
      .def(
          "__init__",
          [](LongRope* self, nb::handle short_factors, nb::handle long_factors, Index trained,
             nb::handle factor, nb::handle attention_factor) {
            new (self) LongRope{factors_of(short_factors, "LongRope: short_factors"),
                                factors_of(long_factors, "LongRope: long_factors"), trained,
                                number<double>(factor, "LongRope: factor"),
                                number_or_none(attention_factor, "LongRope: attention_factor")};
          },
          "short_factors"_a, "long_factors"_a, "trained_tokens"_a = 4096, "factor"_a = 1,
          "attention_factor"_a = nb::none())
      .def("__reduce__", [](const LongRope& s) {
        return recipe<LongRope>(s.short_factors, s.long_factors, s.trained_tokens, s.factor,
                                s.attention_factor);
      });
}

void bind_scalings(nb::module_& module) {
  nb::class_<LinearRope>(module, "LinearRope", nb::is_weak_referenceable(),
                         "All frequencies divided by the factor.")
      .def(
          "__init__",
          [](LinearRope* self, nb::handle factor) {
            new (self) LinearRope{number<double>(factor, "LinearRope: factor")};
          },
          "factor"_a)
      .def("__reduce__", [](const LinearRope& s) { return recipe<LinearRope>(s.factor); });
  nb::class_<NtkRope>(module, "NtkRope", nb::is_weak_referenceable(),
                      "A larger base: the lowest frequency is divided.")
      .def(
          "__init__",
          [](NtkRope* self, nb::handle factor) {
            new (self) NtkRope{number<double>(factor, "NtkRope: factor")};
          },
          "factor"_a)
      .def("__reduce__", [](const NtkRope& s) { return recipe<NtkRope>(s.factor); });
  nb::class_<DynamicNtkRope>(module, "DynamicNtkRope", nb::is_weak_referenceable(),
                             "NTK with a factor that grows with the length.")
      .def(
          "__init__",
          [](DynamicNtkRope* self, nb::handle factor, Index trained) {
            new (self) DynamicNtkRope{number<double>(factor, "DynamicNtkRope: factor"), trained};
          },
          "factor"_a, "trained_tokens"_a = 2048)
      .def("__reduce__", [](const DynamicNtkRope& s) {
        return recipe<DynamicNtkRope>(s.factor, s.trained_tokens);
      });
  bind_yarn(module);
  nb::class_<Llama3Rope>(module, "Llama3Rope", nb::is_weak_referenceable(), "Llama 3.1's scaling.")
      .def(
          "__init__",
          [](Llama3Rope* self, nb::handle factor, Index trained, nb::handle low, nb::handle high) {
            new (self) Llama3Rope{number<double>(factor, "Llama3Rope: factor"), trained,
                                  number<double>(low, "Llama3Rope: low"),
                                  number<double>(high, "Llama3Rope: high")};
          },
          "factor"_a = 8, "trained_tokens"_a = 8192, "low"_a = 1, "high"_a = 4)
      .def("__reduce__", [](const Llama3Rope& s) {
        return recipe<Llama3Rope>(s.factor, s.trained_tokens, s.low, s.high);
      });
  bind_long(module);
}

RopeScaling scaling_of(nb::handle given) {
  if (given.is_none()) return {};
  RopeScaling scaling;
  if (!nb::try_cast(given, scaling, false))
    wrong_type("Rope: scaling is expected to be Linear, Ntk, DynamicNtk, Yarn, Llama3 or Long");
  return scaling;
}

RopeSections sections_of(nb::handle pairs, const std::string& order) {
  RopeSections sections;
  if (pairs.is_none()) return sections;
  sections.pairs = indices_of(pairs, "Rope: sections");
  if (order == "interleaved")
    sections.order = RopeSections::Order::interleaved;
  else if (order == "restarted")
    sections.order = RopeSections::Order::restarted;
  else if (order != "blocks")
    wrong_value("Rope: sections_order is \"", order,
                "\", expected \"blocks\", \"interleaved\" or \"restarted\"");
  return sections;
}

void make_rope(Rope* self, Index dim, nb::handle base, const std::string& layout,
               std::optional<Index> rotated, bool proportional, nb::object scaling,
               nb::object sections, const std::string& sections_order, nb::handle xpos) {
  RopeOptions options{.dim = dim,
                      .rotated = rotated,
                      .proportional = proportional,
                      .base = number<double>(base, "Rope: base")};
  if (layout == "interleaved")
    options.layout = RopeLayout::interleaved;
  else if (layout != "half_split")
    wrong_value("Rope: layout is \"", layout, "\", expected \"half_split\" or \"interleaved\"");
  options.scaling = scaling_of(scaling);
  options.sections = sections_of(sections, sections_order);
  if (const auto scale_base = number_or_none(xpos, "Rope: xpos"))
    options.xpos = XPos{.scale_base = *scale_base};
  new (self) Rope(options);
}

enum class Pass { forward, backward };

nb::object rotated(const Rope& rope, nb::handle x, nb::handle positions, nb::handle layout_name,
                   Pass pass) {
  Array array(x, "Rope: x");
  const Layout layout = layout_of(layout_name);
  const AnyView in = laid_out(array.operand(), layout);
  const Index axes = static_cast<Index>(rope.options().sections.pairs.size());
  const GivenPositions at(positions, axes);
  Tensor out = Tensor::uninitialized(in.shape(), in.type());
  {
    const nb::gil_scoped_release release;
    if (pass == Pass::forward)
      rope.apply_into(out, in, at.get());
    else
      rope.apply_backward_into(out, in, at.get());
  }
  return ResultArray(array).array(std::move(out), layout);
}

}  // namespace

void bind_rope(nb::module_& module) {
  bind_scalings(module);
  nb::class_<Rope>(module, "Rope", nb::is_weak_referenceable(), "Rotary positions.")
      .def("__init__", &make_rope, "dim"_a, "base"_a = 10000, "layout"_a = "half_split",
           "rotated"_a = nb::none(), "proportional"_a = false, "scaling"_a = nb::none(),
           "sections"_a = nb::none(), "sections_order"_a = "blocks", "xpos"_a = nb::none())
      .def(nb::init<const Rope&>(), "other"_a)
      .def_prop_ro(
          "frequencies",
          [](const Rope& rope) {
            return std::vector<double>(rope.frequencies().begin(), rope.frequencies().end());
          },
          "Radians per position, one for each pair.")
      .def_prop_ro("attention_factor", &Rope::attention_factor,
                   "What cosines and sines are multiplied by.")
      .def_prop_ro("dim", [](const Rope& rope) { return rope.options().dim; })
      .def("for_length", &Rope::for_length, "tokens"_a,
           "This rope for sequences of so many tokens; differs under DynamicNtk and Long only.")
      .def("for_queries", &Rope::for_queries, "With xPos: the rope of queries.")
      .def("for_keys", &Rope::for_keys, "With xPos: the rope of keys.")
      .def(
          "_apply",
          [](const Rope& rope, nb::handle x, nb::handle positions, nb::handle layout) {
            return rotated(rope, x, positions, layout, Pass::forward);
          },
          "x"_a.none(), "positions"_a.none(), "layout"_a)
      .def(
          "_apply_backward",
          [](const Rope& rope, nb::handle dout, nb::handle positions, nb::handle layout) {
            return rotated(rope, dout, positions, layout, Pass::backward);
          },
          "dout"_a.none(), "positions"_a.none(), "layout"_a);
}

}  // namespace rapt::python
