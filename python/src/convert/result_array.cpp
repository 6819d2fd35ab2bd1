#include "python/src/convert/result_array.h"

#include <memory>

namespace rapt::python {
namespace {

using nb::dlpack::dtype;
using nb::dlpack::dtype_code;

/// Elements, and the object that frees them.
struct Memory {
  void* data;
  dtype type;
  Shape shape, strides;
  std::shared_ptr<void> owner;
};

/// What a DLPack consumer gets; it frees itself.
struct Shared {
  DlManaged managed{};
  std::int64_t shape[Shape::max_rank];
  std::int64_t strides[Shape::max_rank];
  std::shared_ptr<void> owner;
};

nb::object through_exchange(const DlExchange& table, Memory memory) {
  auto shared = std::make_unique<Shared>();
  for (Index axis = 0; axis < memory.shape.rank(); ++axis) {
    shared->shape[axis] = memory.shape[axis];
    shared->strides[axis] = memory.strides[axis];
  }
  shared->owner = std::move(memory.owner);
  DlManaged& managed = shared->managed;
  managed.version = {1, 0};
  managed.owner = shared.get();
  managed.release = [](DlManaged* self) { delete static_cast<Shared*>(self->owner); };
  managed.tensor.data = memory.data;
  managed.tensor.device = {nb::device::cpu::value, 0};
  managed.tensor.ndim = static_cast<std::int32_t>(memory.shape.rank());
  managed.tensor.dtype = memory.type;
  managed.tensor.shape = shared->shape;
  managed.tensor.strides = shared->strides;
  void* object = nullptr;
  if (table.to_object(&shared.release()->managed, &object) != 0) throw nb::python_error();
  return nb::steal(static_cast<PyObject*>(object));
}

template <class Framework>
nb::object through_nanobind(Memory memory) {
  const nb::capsule owner(new std::shared_ptr<void>(std::move(memory.owner)),
                          [](void* p) noexcept { delete static_cast<std::shared_ptr<void>*>(p); });
  std::size_t shape[Shape::max_rank];
  std::int64_t strides[Shape::max_rank];
  for (Index axis = 0; axis < memory.shape.rank(); ++axis) {
    shape[axis] = static_cast<std::size_t>(memory.shape[axis]);
    strides[axis] = memory.strides[axis];
  }
  const auto rank = static_cast<std::size_t>(memory.shape.rank());
  return nb::cast(nb::ndarray<Framework>(memory.data, rank, shape, owner, strides, memory.type));
}

/// numpy.ndarray if numpy has been imported.
nb::handle numpy_array_type() {
  static nb::handle type;
  if (type.is_valid()) return type;
  const nb::object numpy =
      nb::module_::import_("sys").attr("modules").attr("get")("numpy", nb::none());
  if (!numpy.is_none()) type = nb::object(numpy.attr("ndarray")).release();
  return type;
}

bool is_numpy(nb::handle object) {
  const nb::handle type = numpy_array_type();
  return type.is_valid() && PyObject_IsInstance(object.ptr(), type.ptr()) == 1;
}

/// numpy knows bf16 only through a dtype of another package, which the caller's array has.
nb::object through_numpy(nb::handle like, Memory memory) {
  if (memory.type != dtype_of(Type::bf16)) return through_nanobind<nb::numpy>(std::move(memory));
  memory.type = nb::dtype<std::uint16_t>();
  const nb::object bits = through_nanobind<nb::numpy>(std::move(memory));
  return bits.attr("view")(like.attr("dtype"));
}

nb::object through(nb::handle like, Memory memory) {
  if (const DlExchange* table = exchange_of(like))
    return through_exchange(*table, std::move(memory));
  if (is_numpy(like)) return through_numpy(like, std::move(memory));
  if (PyObject_CheckBuffer(like.ptr())) return through_nanobind<nb::memview>(std::move(memory));
  return through_nanobind<nb::array_api>(std::move(memory));
}

template <class T>
Memory memory_of(std::vector<T> numbers, const Shape& shape) {
  auto owner = std::make_shared<std::vector<T>>(std::move(numbers));
  return {owner->data(), nb::dtype<T>(), shape, shape.row_major(), owner};
}

}  // namespace

dtype dtype_of(Type type) {
  const auto code = type == Type::bf16 ? dtype_code::Bfloat : dtype_code::Float;
  return {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(8 * size_of(type)), 1};
}

nb::object ResultArray::array(Tensor tensor, Layout layout) const {
  return array(std::make_shared<const Tensor>(std::move(tensor)), layout);
}

nb::object ResultArray::array(std::shared_ptr<const Tensor> tensor, Layout layout) const {
  Shape shape = tensor->shape(), strides = shape.row_major();
  if (layout == Layout::blhd) {
    std::swap(shape[1], shape[2]);
    std::swap(strides[1], strides[2]);
  }
  auto owner = std::const_pointer_cast<Tensor>(std::move(tensor));  // the caller's from now on
  void* data = owner->memory();
  const dtype type = dtype_of(owner->type());
  return through(like_, {data, type, shape, strides, std::move(owner)});
}

nb::object ResultArray::array(std::vector<float> numbers, const Shape& shape) const {
  return through(like_, memory_of(std::move(numbers), shape));
}

nb::object ResultArray::array(std::vector<double> numbers, const Shape& shape) const {
  return through(like_, memory_of(std::move(numbers), shape));
}

nb::object ResultArray::array_or_none(Tensor tensor) const {
  return tensor.empty() ? nb::none() : array(std::move(tensor));
}

/// numpy.empty; numpy is there when this is called.
nb::handle numpy_empty() {
  static const nb::handle empty = nb::object(nb::module_::import_("numpy").attr("empty")).release();
  return empty;
}

OutputArray::OutputArray(const Array& like, const Shape& shape, Type type)
    : answer_(like), shape_(shape), type_(type) {
  if (exchange_of(like.object()) != nullptr || !is_numpy(like.object())) {
    tensor_ = Tensor::uninitialized(shape, type);
    return;
  }
  nb::object sizes = nb::steal(PyTuple_New(shape.rank()));
  for (Index axis = 0; axis < shape.rank(); ++axis)
    PyTuple_SetItem(sizes.ptr(), axis, PyLong_FromLongLong(shape[axis]));
  object_ = numpy_empty()(sizes, like.object().attr("dtype"));
  array_.emplace(object_, "out");
}

AnyMutableView OutputArray::view() {
  if (!array_) return tensor_;
  void* data = const_cast<void*>(array_->operand().data());  // a fresh array may be written
  return AnyMutableView::unchecked(data, type_, shape_, shape_.row_major());
}

nb::object OutputArray::take() {
  if (!array_) return answer_.array(std::move(tensor_));
  array_.reset();
  return std::move(object_);
}

}  // namespace rapt::python
