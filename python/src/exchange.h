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

/// The table of an object's type; null if it has none that we understand.
const DlExchange* exchange_of(nanobind::handle object);

}  // namespace rapt::python
