#include "python/src/convert/call_options.h"
#include "python/src/convert/errors.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace rapt::python {
namespace {

template <class T>
std::vector<T> sequence(nb::handle given, const char* name) {
  std::vector<T> values;
  if (!nb::try_cast(given, values))
    wrong_type(name, " is a ", nb::inst_name(given).c_str(),
               ", expected an array or a list of numbers");
  return values;
}

RelativeTable::Direction direction_of(nb::handle given) {
  return from_string<RelativeTable::Direction>(nb::cast<std::string>(nb::str(given)));
}

}  // namespace

Context context_of(nb::handle given) {
  if (given.is_none()) return {};
  if (!nb::isinstance<Context>(given))
    wrong_type("context is ", nb::repr(given).c_str(),
               ", expected None or a rapt.Context: rapt.Context(threads=2)");
  return nb::cast<Context>(given);
}

void refuse_tensor(nb::handle given, const char* name) {
  if (PyFloat_CheckExact(given.ptr())) return;  // the usual number, which is asked nothing
  if (nb::hasattr(given, "requires_grad"))
    wrong_type(name,
               " is a torch.Tensor, expected a Python number; item() gives one, without "
               "gradients");
}

bool is_array(nb::handle given) {
  return exchange_of(given) != nullptr || PyObject_CheckBuffer(given.ptr()) ||
         nb::hasattr(given, "__dlpack__");
}

std::vector<float> floats_of(nb::handle given, const char* name) {
  if (is_array(given)) return Array(given, name).to_floats();
  return sequence<float>(given, name);
}

std::vector<Index> indices_of(nb::handle given, const char* name) {
  if (is_array(given)) return Array(given, name).to_indices();
  return sequence<Index>(given, name);
}

Pattern pattern_of(nb::handle given) {
  if (given.is_none()) return full();
  Pattern pattern;
  if (nb::try_cast(given, pattern, false)) return pattern;
  if (nb::isinstance<nb::str>(given)) return Pattern::parse(nb::cast<std::string>(given));
  if (nb::isinstance<Plan>(given)) return nb::cast<const Plan&>(given).pattern();
  wrong_type("pattern is a ", nb::inst_name(given).c_str(),
             ", expected a Pattern, its text or a Plan");
}

Scale scale_of(nb::handle given) {
  if (given.is_none()) return {};
  if (nb::isinstance<Scale>(given)) return nb::cast<Scale>(given);
  if (!nb::isinstance<nb::str>(given)) return Scale::value(number<double>(given, "scale"));
  const auto name = nb::cast<std::string>(given);
  if (name == "inverse_sqrt_dim") return Scale::inverse_sqrt_dim();
  if (name == "inverse_dim") return Scale::inverse_dim();
  if (name == "log_n") return Scale::log_n();
  if (name == "none") return Scale::none();
  wrong_value("scale is \"", name,
              "\", expected a number, a Scale, \"inverse_sqrt_dim\", \"inverse_dim\", "
              "\"log_n\" or \"none\"");
}

CallOptions::CallOptions(nb::tuple options) {
  if (options.size() != static_cast<std::size_t>(Field::count))
    wrong_value("attention options: wrong number of fields");
  const auto given = [&](Field field) -> nb::handle {
    const nb::handle value = PyTuple_GetItem(options.ptr(), static_cast<Py_ssize_t>(field));
    return value.is_none() ? nb::handle() : value;
  };
  if (const auto value = given(Field::context)) context_ = context_of(value);
  if (const auto value = given(Field::pattern)) take_pattern(value);
  if (const auto value = given(Field::scale)) attention_.scale = scale_of(value);
  if (const auto value = given(Field::softcap)) take_softcap(value);
  if (const auto value = given(Field::bias)) take_bias(value);
  if (const auto value = given(Field::relative_values))
    attention_.relative_values = table(value, "relative_values", 2);
  if (const auto value = given(Field::rotations))
    attention_.rotations = table(value, "rotations", 4);
  if (const auto value = given(Field::sinks)) attention_.sinks = floats_of(value, "sinks");
  if (const auto value = given(Field::dropout))
    attention_.dropout.rate = number<double>(value, "dropout");
  if (const auto value = given(Field::seed))
    attention_.dropout.seed = number<std::uint64_t>(value, "seed");
  if (const auto value = given(Field::strict)) attention_.strict = number<bool>(value, "strict");
}

void CallOptions::take_softcap(nb::handle given) {
  attention_.softcap = number<double>(given, "softcap");
  if (attention_.softcap == 0)
    wrong_value("softcap is 0, expected a number above 0, or softcap=None for no cap");
}

void CallOptions::take_pattern(nb::handle given) {
  attention_.pattern = pattern_of(given);
  if (nb::isinstance<Plan>(given))
    attention_.plan = std::make_shared<const Plan>(nb::cast<const Plan&>(given));
}

View CallOptions::table(nb::handle given, const char* name, Index rank) {
  return arrays_.emplace_back(given, name).floats(rank);
}

/// A rapt.Bias: an object whose parts are None or tuples.
void CallOptions::take_bias(nb::handle given) {
  const auto part = [&](const char* name) -> nb::object { return given.attr(name); };
  Bias& bias = attention_.bias;
  if (const nb::object alibi = part("alibi"); !alibi.is_none())
    bias.alibi = Alibi{floats_of(alibi, "alibi: slopes")};
  if (const nb::object kerple = part("kerple"); !kerple.is_none()) {
    const bool power = nb::cast<std::string>(kerple[0]) == "power";
    bias.kerple =
        Kerple{power ? Kerple::Kind::power : Kerple::Kind::logarithmic,
               floats_of(kerple[1], "kerple: amplitudes"), floats_of(kerple[2], "kerple: rates")};
  }
  if (const nb::object t5 = part("table"); !t5.is_none())
    bias.table = RelativeTable{table(t5[0], "t5_bias: values", 2),
                               number<Index>(t5[1], "t5_bias: max_distance"), direction_of(t5[2])};
  if (const nb::object keys = part("keys"); !keys.is_none())
    bias.keys = RelativeKeys{table(keys, "relative_keys: table", 2)};
  if (const nb::object dense = part("dense"); !dense.is_none())
    bias.dense = DenseBias{table(dense[0], "dense_bias: values", 4), nb::cast<bool>(dense[1])};
}

Shape shape_of(const std::vector<Index>& sizes, const char* name) {
  if (sizes.size() != 4)
    wrong_value("explain: ", name, " has ", sizes.size(),
                " sizes, expected 4: [batch, heads, tokens, dim]");
  return {sizes[0], sizes[1], sizes[2], sizes[3]};
}

}  // namespace rapt::python
