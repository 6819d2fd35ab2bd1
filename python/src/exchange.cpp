#include "python/src/exchange.h"

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

}  // namespace

const DlExchange* exchange_of(nb::handle object) {
  // Types live on: the map holds a reference to each. The GIL guards it; a free-threaded build
  // would need a lock here.
  static auto& known = *new std::unordered_map<PyObject*, const DlExchange*>;
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()));
  const auto found = known.find(type);
  if (found != known.end()) return found->second;
  const DlExchange* table = lookup(type);
  known.emplace(nb::handle(type).inc_ref().ptr(), table);
  return table;
}

}  // namespace rapt::python
