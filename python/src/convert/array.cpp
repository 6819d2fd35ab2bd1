#include "python/src/convert/array.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "python/src/convert/errors.h"

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

/// The element of a format of Python's struct module, native byte order only.
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

std::string words_of(const nb::object& value) { return nb::cast<std::string>(nb::str(value)); }

[[noreturn]] void wrong_element(const char* name, Element given, nb::handle object,
                                const char* expected) {
  if (given == Element::other && nb::hasattr(object, "dtype"))
    wrong_type(name, " has numbers of another type, ", words_of(object.attr("dtype")),
               ", expected ", expected);
  wrong_type(name, " has numbers of ", text(given), ", expected ", expected);
}

/// " (torch.sparse_coo, cpu, torch.float32)" of a tensor, for messages.
std::string kind(nb::handle tensor) {
  std::string words;
  for (const char* name : {"layout", "device", "dtype"})
    if (nb::hasattr(tensor, name))
      words += (words.empty() ? " (" : ", ") + words_of(tensor.attr(name));
  return words.empty() ? words : words + ")";
}

}  // namespace

const char* text(Element element) { return info(element).name; }
Index bytes_of(Element element) { return info(element).bytes; }

Array::Array(nb::handle object, const char* name) : object_(nb::borrow(object)), name_(name) {
  const ArrayType& type = array_type_of(object_);
  if (type.refusal != nullptr)
    wrong_type(name_, " is a ", nb::inst_name(object_).c_str(), ", ", type.refusal);
  if (type.exchange != nullptr)
    take_tensor(type);
  else if (!take_buffer() && !take_bf16_of_numpy())
    take_dlpack();
  if (data_ == nullptr && elements() > 0)
    wrong_value(name_, " has ", elements(),
                " numbers but no memory (null pointer); was its storage "
                "freed?");
}

Array::Array(Array&& other) noexcept
    : object_(std::move(other.object_)),
      name_(other.name_),
      buffer_(std::exchange(other.buffer_, {})),
      dlpack_(std::move(other.dlpack_)),
      data_(other.data_),
      element_(other.element_),
      rank_(other.rank_),
      copy_(std::move(other.copy_)) {
  std::copy_n(other.shape_, rank_, shape_);
  std::copy_n(other.strides_, rank_, strides_);
}

Array::~Array() {
  if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
}

void Array::take_rank(Index rank) {
  if (rank > max_rank) wrong_value(name_, " has ", rank, " axes, expected at most 8");
  rank_ = rank;
}

/// PyTorch may keep a negation, or that all elements are 0, as a flag and not in memory.
void Array::take_tensor(const ArrayType& type) {
  if (type.is_neg != nullptr) {
    const nb::object negative = nb::steal(PyObject_CallOneArg(type.is_neg, object_.ptr()));
    if (!negative.is_valid()) throw nb::python_error();
    if (negative.is(Py_True)) object_ = object_.attr("resolve_neg")();
  }
  take_exchange(*type.exchange);
  if (data_ != nullptr || elements() == 0 || !nb::hasattr(object_, "_is_zerotensor")) return;
  if (!nb::cast<bool>(object_.attr("_is_zerotensor")())) return;
  object_ = object_.attr("clone")();
  take_exchange(*type.exchange);
}

void Array::take_exchange(const DlExchange& table) {
  DlTensor tensor{};
  if (table.borrow(object_.ptr(), &tensor) != 0) {
    PyErr_Clear();  // a page of the other library's stack
    wrong_type(name_, " has no numbers that can be read in the memory of the CPU", kind(object_));
  }
  if (tensor.device.device_type != nb::device::cpu::value)
    wrong_type(name_, " is not in the memory of the CPU");
  data_ = static_cast<const std::byte*>(tensor.data) + tensor.byte_offset;
  element_ = element_of(tensor.dtype);
  take_rank(tensor.ndim);
  Index stride = bytes_of(element_);
  for (Index axis = rank_; axis-- > 0; stride *= shape_[axis]) {
    shape_[axis] = tensor.shape[axis];
    strides_[axis] = tensor.strides == nullptr ? stride : tensor.strides[axis] * bytes_of(element_);
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
  take_rank(buffer_.ndim);
  std::copy_n(buffer_.shape, rank_, shape_);
  std::copy_n(buffer_.strides, rank_, strides_);
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
  take_rank(buffer_.ndim);
  std::copy_n(buffer_.shape, rank_, shape_);
  std::copy_n(buffer_.strides, rank_, strides_);
  return true;
}

void Array::take_dlpack() {
  if (!nb::try_cast(object_, dlpack_))
    wrong_type(name_, " is a ", nb::inst_name(object_).c_str(),
               ", expected an array: torch, numpy, anything with the buffer protocol or DLPack");
  if (dlpack_.device_type() != nb::device::cpu::value)
    wrong_type(name_, " is not in the memory of the CPU");
  data_ = static_cast<const std::byte*>(dlpack_.data());
  element_ = element_of(dlpack_.dtype());
  take_rank(static_cast<Index>(dlpack_.ndim()));
  for (Index axis = 0; axis < rank_; ++axis) {
    const auto a = static_cast<std::size_t>(axis);
    shape_[axis] = static_cast<Index>(dlpack_.shape(a));
    strides_[axis] = dlpack_.stride(a) * bytes_of(element_);
  }
}

Index Array::elements() const {
  Index count = 1;
  for (Index axis = 0; axis < rank_; ++axis) count *= shape_[axis];
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
      wrong_element(name_, element_, object_, "float32, bfloat16 or float16");
  }
}

bool Array::straight() const {
  const Index bytes = bytes_of(element_);
  if (reinterpret_cast<std::uintptr_t>(data_) % static_cast<std::uintptr_t>(bytes) != 0)
    return false;
  for (Index axis = 0; axis < rank_; ++axis)
    if (strides_[axis] % bytes != 0) return false;
  return rank_ == 0 || shape_[rank_ - 1] <= 1 || strides_[rank_ - 1] == bytes;
}

bool Array::row_major() const {
  Index stride = bytes_of(element_);
  for (Index axis = rank_; axis-- > 0; stride *= shape_[axis])
    if (strides_[axis] != stride && shape_[axis] > 1) return false;
  return true;
}

template <class Read>
void Array::for_each(const Read& read) const {
  if (elements() == 0) return;
  Index at[max_rank] = {};
  const std::byte* from = data_;
  for (;;) {
    read(from);
    Index axis = rank_ - 1;
    for (; axis >= 0; --axis) {
      from += strides_[axis];
      if (++at[axis] < shape_[axis]) break;
      from -= strides_[axis] * shape_[axis];
      at[axis] = 0;
    }
    if (axis < 0) return;
  }
}

AnyView Array::operand() {
  const Type type = number_type();
  if (rank_ != 4)
    wrong_value(name_, " has ", rank_, " axes, expected 4: [batch, heads, tokens, dim]");
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
  return AnyView::unchecked(data_, type, shape, strides);
}

View Array::floats(Index rank) {
  if (!is_float(element_)) wrong_element(name_, element_, object_, "floats");
  if (rank_ > rank) wrong_value(name_, " has ", rank_, " axes, expected at most ", rank);
  Shape shape, strides;
  if (rank == 2) shape = {1, 1};
  if (rank == 3) shape = {1, 1, 1};
  if (rank == 4) shape = {1, 1, 1, 1};
  const Index before = rank - rank_;
  for (Index axis = before; axis < rank; ++axis) shape[axis] = size(axis - before);
  if (element_ != Element::f32 || !straight()) {
    copy_ = Tensor::uninitialized(shape);
    float* to = copy_.data();
    for_each([&](const std::byte* from) { *to++ = static_cast<float>(as_double(element_, from)); });
    return copy_;
  }
  strides = shape.row_major();
  for (Index axis = before; axis < rank; ++axis) strides[axis] = strides_[axis - before] / 4;
  if (shape[rank - 1] <= 1) strides[rank - 1] = 1;
  return View::unchecked(reinterpret_cast<const float*>(data_), shape, strides);
}

std::vector<double> Array::to_doubles() const {
  if (!is_float(element_)) wrong_element(name_, element_, object_, "floats");
  std::vector<double> numbers;
  for_each([&](const std::byte* from) { numbers.push_back(as_double(element_, from)); });
  return numbers;
}

std::vector<float> Array::to_floats() const {
  const std::vector<double> numbers = to_doubles();
  return {numbers.begin(), numbers.end()};
}

std::vector<Index> Array::to_indices() const {
  if (!is_integer(element_)) wrong_element(name_, element_, object_, "integers");
  std::vector<Index> numbers;
  for_each([&](const std::byte* from) { numbers.push_back(as_index(element_, from)); });
  return numbers;
}

std::span<const bool> Array::booleans(std::unique_ptr<bool[]>& buffer) const {
  if (element_ != Element::boolean) wrong_element(name_, element_, object_, "bool");
  const auto count = static_cast<std::size_t>(elements());
  if (row_major()) return {reinterpret_cast<const bool*>(data_), count};
  buffer = std::make_unique<bool[]>(count);
  bool* to = buffer.get();
  for_each([&](const std::byte* from) { *to++ = load<std::uint8_t>(from) != 0; });
  return {buffer.get(), count};
}

Layout layout_of(nb::handle text) {
  const auto name = nb::cast<std::string>(nb::str(text));
  if (name == "bhld") return Layout::bhld;
  if (name == "blhd") return Layout::blhd;
  wrong_value("layout is \"", name, "\", expected \"bhld\" or \"blhd\"");
}

}  // namespace rapt::python
