#include "python/src/array.h"

#include <nanobind/stl/string.h>

#include <cstring>
#include <utility>

namespace rapt::python {
namespace {

struct ElementInfo {
  const char* name;
  Index bytes;
};

const ElementInfo& info(Element element) {
  static const ElementInfo table[] = {{"float32", 4}, {"bfloat16", 2},    {"float16", 2},
                                      {"float64", 8}, {"int8", 1},        {"int16", 2},
                                      {"int32", 4},   {"int64", 8},       {"uint8", 1},
                                      {"bool", 1},    {"another type", 1}};
  return table[static_cast<int>(element)];
}

Element signed_of(Index bytes) {
  switch (bytes) {
    case 1:
      return Element::i8;
    case 2:
      return Element::i16;
    case 4:
      return Element::i32;
    case 8:
      return Element::i64;
    default:
      return Element::other;
  }
}

/// Of a format of Python's struct module, native byte order only.
Element element_of(const char* format, Index bytes) {
  if (format == nullptr) return Element::u8;
  std::string_view text = format;
  if (!text.empty() && (text[0] == '@' || text[0] == '=' || text[0] == '<')) text.remove_prefix(1);
  if (text.size() != 1) return Element::other;
  switch (text[0]) {
    case 'f':
      return Element::f32;
    case 'e':
      return Element::f16;
    case 'd':
      return Element::f64;
    case '?':
      return Element::boolean;
    case 'B':
      return Element::u8;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
      return signed_of(bytes);
    default:
      return Element::other;
  }
}

Element element_of(nb::dlpack::dtype type) {
  const auto code = static_cast<nb::dlpack::dtype_code>(type.code);
  using nb::dlpack::dtype_code;
  if (type.lanes != 1) return Element::other;
  if (code == dtype_code::Float && type.bits == 32) return Element::f32;
  if (code == dtype_code::Float && type.bits == 64) return Element::f64;
  if (code == dtype_code::Float && type.bits == 16) return Element::f16;
  if (code == dtype_code::Bfloat && type.bits == 16) return Element::bf16;
  if (code == dtype_code::Int) return signed_of(type.bits / 8);
  if (code == dtype_code::UInt && type.bits == 8) return Element::u8;
  if (code == dtype_code::Bool && type.bits == 8) return Element::boolean;
  return Element::other;
}

std::vector<Index> row_major(const std::vector<Index>& shape, Index bytes) {
  std::vector<Index> strides(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0; bytes *= shape[axis]) strides[axis] = bytes;
  return strides;
}

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

double as_double(Element element, const std::byte* from) {
  switch (element) {
    case Element::f32:
      return static_cast<double>(load<float>(from));
    case Element::bf16:
      return static_cast<double>(static_cast<float>(load<Bf16>(from)));
    case Element::f16:
      return static_cast<double>(static_cast<float>(load<F16>(from)));
    case Element::f64:
      return load<double>(from);
    default:
      std::abort();  // callers have checked
  }
}

Index as_index(Element element, const std::byte* from) {
  switch (element) {
    case Element::i8:
      return load<std::int8_t>(from);
    case Element::i16:
      return load<std::int16_t>(from);
    case Element::i32:
      return load<std::int32_t>(from);
    case Element::i64:
      return load<std::int64_t>(from);
    case Element::u8:
      return load<std::uint8_t>(from);
    default:
      std::abort();
  }
}

bool is_float(Element element) { return element <= Element::f64; }
bool is_integer(Element element) { return Element::i8 <= element && element <= Element::u8; }

[[noreturn]] void wrong_type(const std::string& name, Element given, const char* expected) {
  throw nb::type_error(
      (name + " has numbers of " + text(given) + ", expected " + expected).c_str());
}

}  // namespace

const char* text(Element element) { return info(element).name; }
Index bytes_of(Element element) { return info(element).bytes; }

Array::Array(nb::handle object, std::string name)
    : object_(nb::borrow(object)), name_(std::move(name)) {
  if (const DlExchange* table = exchange_of(object_))
    take_exchange(*table);
  else if (!take_buffer() && !take_bf16_of_numpy())
    take_dlpack();
}

Array::Array(Array&& other) noexcept
    : object_(std::move(other.object_)),
      name_(std::move(other.name_)),
      buffer_(std::exchange(other.buffer_, {})),
      dlpack_(std::move(other.dlpack_)),
      data_(other.data_),
      element_(other.element_),
      shape_(std::move(other.shape_)),
      strides_(std::move(other.strides_)),
      copy_(std::move(other.copy_)) {}

Array::~Array() {
  if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
}

void Array::take_exchange(const DlExchange& table) {
  DlTensor tensor{};
  if (table.borrow(object_.ptr(), &tensor) != 0) throw nb::python_error();
  if (tensor.device.device_type != nb::device::cpu::value)
    throw nb::type_error((name_ + " is not in the memory of the CPU").c_str());
  data_ = static_cast<const std::byte*>(tensor.data) + tensor.byte_offset;
  element_ = element_of(tensor.dtype);
  shape_.assign(tensor.shape, tensor.shape + tensor.ndim);
  const Index bytes = bytes_of(element_);
  if (tensor.strides == nullptr) {
    strides_ = row_major(shape_, bytes);
  } else {
    for (int axis = 0; axis < tensor.ndim; ++axis) strides_.push_back(tensor.strides[axis] * bytes);
  }
}

bool Array::take_buffer() {
  if (!PyObject_CheckBuffer(object_.ptr())) return false;
  if (PyObject_GetBuffer(object_.ptr(), &buffer_, PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
    PyErr_Clear();  // numpy shares no bf16 this way
    buffer_ = {};
    return false;
  }
  data_ = static_cast<const std::byte*>(buffer_.buf);
  element_ = element_of(buffer_.format, buffer_.itemsize);
  shape_.assign(buffer_.shape, buffer_.shape + buffer_.ndim);
  strides_.assign(buffer_.strides, buffer_.strides + buffer_.ndim);
  return true;
}

bool Array::take_bf16_of_numpy() {
  const nb::object dtype = nb::getattr(object_, "dtype", nb::none());
  if (!nb::hasattr(dtype, "name") || !nb::hasattr(object_, "view")) return false;
  if (nb::cast<std::string>(nb::str(dtype.attr("name"))) != "bfloat16") return false;
  const nb::object bits = object_.attr("view")("uint16");
  if (PyObject_GetBuffer(bits.ptr(), &buffer_, PyBUF_STRIDES) != 0) throw nb::python_error();
  data_ = static_cast<const std::byte*>(buffer_.buf);
  element_ = Element::bf16;
  shape_.assign(buffer_.shape, buffer_.shape + buffer_.ndim);
  strides_.assign(buffer_.strides, buffer_.strides + buffer_.ndim);
  return true;
}

void Array::take_dlpack() {
  if (!nb::try_cast(object_, dlpack_))
    throw nb::type_error(
        (name_ + " is a " + nb::cast<std::string>(nb::inst_name(object_)) +
         ", expected an array: torch, numpy, anything with the buffer protocol or DLPack")
            .c_str());
  if (dlpack_.device_type() != nb::device::cpu::value)
    throw nb::type_error((name_ + " is not in the memory of the CPU").c_str());
  data_ = static_cast<const std::byte*>(dlpack_.data());
  element_ = element_of(dlpack_.dtype());
  for (std::size_t axis = 0; axis < dlpack_.ndim(); ++axis) {
    shape_.push_back(static_cast<Index>(dlpack_.shape(axis)));
    strides_.push_back(dlpack_.stride(axis) * bytes_of(element_));
  }
}

Index Array::elements() const {
  Index count = 1;
  for (const Index size : shape_) count *= size;
  return count;
}

Type Array::number_type() const {
  switch (element_) {
    case Element::f32:
      return Type::f32;
    case Element::bf16:
      return Type::bf16;
    case Element::f16:
      return Type::f16;
    default:
      wrong_type(name_, element_, "float32, bfloat16 or float16");
  }
}

bool Array::straight() const {
  const Index bytes = bytes_of(element_);
  if (reinterpret_cast<std::uintptr_t>(data_) % static_cast<std::uintptr_t>(bytes) != 0)
    return false;
  for (const Index stride : strides_)
    if (stride % bytes != 0) return false;
  return shape_.empty() || shape_.back() <= 1 || strides_.back() == bytes;
}

template <class Read>
void Array::for_each(const Read& read) const {
  if (elements() == 0) return;
  std::vector<Index> at(shape_.size(), 0);
  const std::byte* from = data_;
  for (;;) {
    read(from);
    std::size_t axis = shape_.size();
    for (; axis > 0; --axis) {
      const std::size_t a = axis - 1;
      from += strides_[a];
      if (++at[a] < shape_[a]) break;
      from -= strides_[a] * shape_[a];
      at[a] = 0;
    }
    if (axis == 0) return;
  }
}

AnyView Array::operand() {
  const Type type = number_type();
  if (shape_.size() != 4)
    throw nb::value_error((name_ + " has " + std::to_string(rank()) +
                           " axes, expected 4: [batch, heads, tokens, dim]")
                              .c_str());
  Shape shape{shape_[0], shape_[1], shape_[2], shape_[3]};
  if (!straight()) {
    copy_ = Tensor::uninitialized(shape, type);
    auto* to = static_cast<std::byte*>(copy_.memory());
    for_each([&](const std::byte* from) {
      std::memcpy(to, from, size_of(type));
      to += size_of(type);
    });
    return copy_;
  }
  const Index bytes = bytes_of(element_);
  Shape strides{strides_[0] / bytes, strides_[1] / bytes, strides_[2] / bytes, 1};
  return AnyView::trusted(data_, type, shape, strides);
}

View Array::floats(Index rank) {
  if (!is_float(element_)) wrong_type(name_, element_, "floats");
  if (this->rank() > rank)
    throw nb::value_error((name_ + " has " + std::to_string(this->rank()) +
                           " axes, expected at most " + std::to_string(rank))
                              .c_str());
  Shape shape, strides;
  if (rank == 2) shape = {1, 1};
  if (rank == 3) shape = {1, 1, 1};
  if (rank == 4) shape = {1, 1, 1, 1};
  const Index before = rank - this->rank();
  for (Index axis = before; axis < rank; ++axis) shape[axis] = size(axis - before);
  if (element_ != Element::f32 || !straight()) {
    copy_ = Tensor::uninitialized(shape);
    float* to = copy_.data();
    for_each([&](const std::byte* from) { *to++ = static_cast<float>(as_double(element_, from)); });
    return copy_;
  }
  strides = shape.row_major();
  for (Index axis = before; axis < rank; ++axis)
    strides[axis] = strides_[static_cast<std::size_t>(axis - before)] / 4;
  if (shape[rank - 1] <= 1) strides[rank - 1] = 1;
  return View::trusted(reinterpret_cast<const float*>(data_), shape, strides);
}

std::vector<double> Array::to_doubles() const {
  if (!is_float(element_)) wrong_type(name_, element_, "floats");
  std::vector<double> numbers;
  for_each([&](const std::byte* from) { numbers.push_back(as_double(element_, from)); });
  return numbers;
}

std::vector<float> Array::to_floats() const {
  const std::vector<double> numbers = to_doubles();
  return {numbers.begin(), numbers.end()};
}

std::vector<Index> Array::to_indices() const {
  if (!is_integer(element_)) wrong_type(name_, element_, "integers");
  std::vector<Index> numbers;
  for_each([&](const std::byte* from) { numbers.push_back(as_index(element_, from)); });
  return numbers;
}

std::vector<std::uint8_t> Array::to_bytes() const {
  if (element_ != Element::boolean) wrong_type(name_, element_, "bool");
  std::vector<std::uint8_t> numbers;
  for_each([&](const std::byte* from) { numbers.push_back(load<std::uint8_t>(from) != 0); });
  return numbers;
}

Layout layout_of(nb::handle text) {
  const auto name = nb::cast<std::string>(nb::str(text));
  if (name == "bhld") return Layout::bhld;
  if (name == "blhd") return Layout::blhd;
  throw nb::value_error(("layout is \"" + name + "\", expected \"bhld\" or \"blhd\"").c_str());
}

}  // namespace rapt::python
