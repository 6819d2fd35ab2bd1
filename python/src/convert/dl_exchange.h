#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>

// DLPack's table of C functions, which array types publish as __dlpack_c_exchange_api__. Asking it
// costs a tenth of a microsecond where a call of __dlpack__ costs several.

namespace rapt::python {

using DlTensor = nanobind::dlpack::dltensor;

struct DlVersion {
  std::uint32_t major, minor;
};

struct DlManaged {
  DlVersion version;
  void* owner;
  void (*release)(DlManaged* self);
  std::uint64_t flags;
  DlTensor tensor;
};

struct DlExchange {
  DlVersion version;
  DlExchange* older;
  void* allocate;
  void* share;
  int (*to_object)(DlManaged* tensor, void** object);  // takes the tensor over
  int (*borrow)(void* object, DlTensor* tensor);       // valid as long as the object is
  void* stream;
};

/// What a type says about its arrays, looked up once for each type.
struct ArrayType {
  const DlExchange* exchange = nullptr;  // null: the type publishes none that we understand
  PyObject* is_neg = nullptr;            // PyTorch's method; null for other libraries
  const char* refusal = nullptr;         // why the numbers in memory are not what the array means
};
const ArrayType& array_type_of(nanobind::handle object);

inline const DlExchange* exchange_of(nanobind::handle object) {
  return array_type_of(object).exchange;
}

}  // namespace rapt::python
