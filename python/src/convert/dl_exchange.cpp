#include "python/src/convert/dl_exchange.h"

#include <nanobind/stl/string.h>

#include <string>
#include <unordered_map>

namespace nb = nanobind;

namespace rapt::python {
namespace {

const DlExchange* lookup(nb::handle type) {
  if (!nb::hasattr(type, "__dlpack_c_exchange_api__")) return nullptr;
  const nb::object capsule = type.attr("__dlpack_c_exchange_api__");
  const char* name = "dlpack_exchange_api";
  if (!PyCapsule_IsValid(capsule.ptr(), name)) return nullptr;
  const auto* table = static_cast<DlExchange*>(PyCapsule_GetPointer(capsule.ptr(), name));
  while (table != nullptr && table->version.major != 1) table = table->older;
  return table;
}

std::string name_of(nb::handle type) {
  return nb::cast<std::string>(nb::str(type.attr("__name__")));
}

/// Whether a class replaces what PyTorch's functions or operators do. Parameter does not: it turns
/// the hook off.
bool has_hook(nb::handle type, const char* hook) {
  const nb::object members = type.attr("__dict__");
  if (PySequence_Contains(members.ptr(), nb::str(hook).ptr()) != 1) return false;
  const nb::object value = members[hook];
  return !nb::hasattr(value, "__name__") || !name_of(value).starts_with("_disabled_torch_");
}

/// A subclass with hooks of its own may mean anything by its memory: CausalBias leaves it
/// uninitialized, FakeTensor has none.
const char* refusal_of(nb::handle type) {
  for (const nb::handle each : nb::borrow<nb::tuple>(type.attr("__mro__"))) {
    const auto module =
        nb::cast<std::string>(nb::str(nb::getattr(each, "__module__", nb::str(""))));
    if (module == "torch" && name_of(each) == "Tensor") return nullptr;
    if (has_hook(each, "__torch_function__") || has_hook(each, "__torch_dispatch__"))
      return "a tensor subclass with functions of its own; expected a plain torch.Tensor: pass "
             "what "
             "the subclass stands for as one";
    if (module.starts_with("numpy.ma") && name_of(each) == "MaskedArray")
      return "whose mask would be ignored; expected a plain array: pass x.filled(value)";
  }
  return nullptr;
}

ArrayType inspected(nb::handle type) {
  ArrayType found{.exchange = lookup(type), .refusal = refusal_of(type)};
  if (found.exchange != nullptr && nb::hasattr(type, "is_neg"))
    found.is_neg = nb::object(type.attr("is_neg")).release().ptr();
  return found;
}

}  // namespace

const ArrayType& array_type_of(nb::handle object) {
  // Types live on: the map holds a reference to each. The GIL guards it; a free-threaded build
  // would need a lock here.
  static auto& known = *new std::unordered_map<PyObject*, ArrayType>;
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()));
  const auto found = known.find(type);
  if (found != known.end()) return found->second;
  const ArrayType made = inspected(type);
  return known.emplace(nb::handle(type).inc_ref().ptr(), made).first->second;
}

}  // namespace rapt::python
