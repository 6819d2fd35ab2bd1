#include "rapt/tensor.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>

#include "base/check.h"
#include "base/memory.h"
#include "base/sizes.h"

namespace rapt {
using namespace detail;

Shape::Shape(std::initializer_list<Index> sizes) : rank_(static_cast<Index>(sizes.size())) {
  check(rank_ <= max_rank, "shape: ", rank_, " axes given, at most ", max_rank, " are supported");
  std::size_t axis = 0;
  for (const Index size : sizes) sizes_[axis++] = size;
}

Index Shape::elements() const {
  Index product = 1;
  bool odd = rank_ == 0;  // something to look at more closely
  for (Index axis = 0; axis < rank_; ++axis) {
    odd |= (*this)[axis] <= 0;
    odd |= __builtin_mul_overflow(product, (*this)[axis], &product);
  }
  if (!odd) [[likely]]
    return product;
  bool none = rank_ == 0;
  for (Index axis = 0; axis < rank_; ++axis) {
    check((*this)[axis] >= 0, "shape ", *this, ": axis ", axis, " has a negative size");
    none = none || (*this)[axis] == 0;
  }
  check(none, "shape ", *this, ": the number of elements does not fit 64 bits");
  return 0;
}

Shape Shape::row_major() const {
  Shape strides = *this;
  Index stride = 1;
  bool odd = false;
  for (Index axis = rank_ - 1; axis >= 0; --axis) {
    strides[axis] = stride;
    odd |= (*this)[axis] < 0;
    // Only a shape without elements can overflow here, and then no stride is ever used.
    if (__builtin_mul_overflow(stride, (*this)[axis], &stride)) [[unlikely]] {
      odd = true;
      stride = 0;
    }
  }
  if (odd) [[unlikely]]
    elements();  // which says what is wrong
  return strides;
}

std::string to_string(const Shape& shape) {
  std::ostringstream text;
  text << '[';
  for (Index axis = 0; axis < shape.rank(); ++axis) text << (axis ? ", " : "") << shape[axis];
  text << ']';
  return text.str();
}

namespace {

struct Reach {
  Index first = 0;
  Index last = 0;
};

/// Offsets of the first and the last element in memory; the shape has at least one element.
Reach reach_of(const Shape& shape, const Shape& strides) {
  Reach reach;
  for (Index axis = 0; axis < shape.rank(); ++axis) {
    Index step = 0;
    const bool overflow = __builtin_mul_overflow(shape[axis] - 1, strides[axis], &step);
    Index& end = step < 0 ? reach.first : reach.last;
    check(!overflow && !__builtin_add_overflow(end, step, &end), "view: shape ", shape,
          " with strides ", strides, " reaches beyond 64 bits");
  }
  return reach;
}

void check_inside(std::size_t size, const Shape& shape, const Shape& strides) {
  check(shape.rank() == strides.rank(), "view: shape ", shape, " has ", shape.rank(),
        " axes but strides ", strides, " have ", strides.rank());
  if (shape.elements() == 0) return;
  const Reach reach = reach_of(shape, strides);
  check(reach.first >= 0 && std::cmp_less(reach.last, size), "view: shape ", shape,
        " with strides ", strides, " reaches elements ", reach.first, " to ", reach.last,
        " of only ", size, " numbers");
}

}  // namespace

template <class T>
BasicView<T>::BasicView(std::span<T> numbers, Shape shape)
    : BasicView(numbers, shape, shape.row_major()) {}

template <class T>
BasicView<T>::BasicView(std::span<T> numbers, Shape shape, Shape strides)
    : data_(numbers.data()), shape_(shape), strides_(strides) {
  check_inside(numbers.size(), shape, strides);
}

template <class T>
BasicView<T> BasicView<T>::unchecked(T* data, Shape shape, Shape strides) {
  BasicView view;
  view.data_ = data;
  view.shape_ = shape;
  view.strides_ = strides;
  return view;
}

template <class T>
BasicView<T> BasicView<T>::swapped(Index axis, Index other) const {
  const Index rank = shape_.rank();
  check(0 <= axis && axis < rank && 0 <= other && other < rank, "view: cannot swap axes ", axis,
        " and ", other, " of shape ", shape_);
  BasicView view = *this;
  std::swap(view.shape_[axis], view.shape_[other]);
  std::swap(view.strides_[axis], view.strides_[other]);
  return view;
}

template class BasicView<float>;
template class BasicView<const float>;
template class BasicView<Bf16>;
template class BasicView<const Bf16>;
template class BasicView<F16>;
template class BasicView<const F16>;

template <class V>
BasicAnyView<V>::BasicAnyView(Owner& tensor)
    : data_(tensor.memory()),
      type_(tensor.type()),
      shape_(tensor.shape()),
      strides_(tensor.shape().row_major()) {}

template <class V>
BasicAnyView<V> BasicAnyView<V>::unchecked(V* data, Type type, Shape shape, Shape strides) {
  BasicAnyView view;
  view.data_ = data;
  view.type_ = type;
  view.shape_ = shape;
  view.strides_ = strides;
  return view;
}

template class BasicAnyView<void>;
template class BasicAnyView<const void>;

void Tensor::Free::operator()(void* memory) const noexcept { release_memory(memory, bytes); }

Tensor Tensor::uninitialized(Shape shape, Type type) {
  Tensor tensor;
  tensor.shape_ = shape;
  tensor.type_ = type;
  tensor.elements_ = shape.elements();
  if (tensor.elements_ == 0) return tensor;
  checked_product({tensor.elements_, static_cast<Index>(size_of(type))});
  tensor.memory_ =
      std::unique_ptr<void, Free>(allocate_memory(tensor.bytes()), Free(tensor.bytes()));
  return tensor;
}

Tensor::Tensor(Shape shape, Type type) : Tensor(uninitialized(shape, type)) {
  if (elements_ != 0) std::memset(memory(), 0, bytes());
}

Tensor Tensor::reshaped(Shape shape) && {
  check(shape.elements() == elements_, "reshaped: ", shape_, " to ", shape,
        ", expected as many elements");
  Tensor same = std::move(*this);
  same.shape_ = shape;
  *this = {};
  return same;
}

Tensor Tensor::clone() const {
  Tensor copy = uninitialized(shape_, type_);
  if (elements_ != 0) std::memcpy(copy.memory(), memory(), bytes());
  return copy;
}

namespace {

/// Calls with_type(T{}) for the C++ type of `type`.
template <class WithType>
void dispatch(Type type, const WithType& with_type) {
  switch (type) {
    case Type::f32:
      return with_type(float{});
    case Type::bf16:
      return with_type(Bf16{});
    case Type::f16:
      return with_type(F16{});
  }
}

}  // namespace

Tensor Tensor::converted(Type type) const {
  Tensor copy = uninitialized(shape_, type);
  dispatch(type_, [&]<class From>(From) {
    dispatch(type, [&]<class To>(To) {
      std::transform(numbers<From>().begin(), numbers<From>().end(), copy.numbers<To>().begin(),
                     [](From x) { return To(static_cast<float>(x)); });
    });
  });
  return copy;
}

void Tensor::wrong_type(Type asked) const {
  fail("tensor: numbers asked for as ", to_string(asked), " but they are ", to_string(type_));
}

}  // namespace rapt
