#include "rapt/tensor.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>

#include "base/check.h"
#include "base/memory.h"
#include "base/sizes.h"

namespace rapt {

Shape::Shape(std::initializer_list<Index> sizes) : rank_(static_cast<Index>(sizes.size())) {
  check(rank_ <= max_rank, "shape: ", rank_, " axes given, at most ", max_rank, " are supported");
  std::size_t axis = 0;
  for (const Index size : sizes) sizes_[axis++] = size;
}

Index Shape::elements() const {
  bool none = rank_ == 0;
  for (Index axis = 0; axis < rank_; ++axis) {
    check((*this)[axis] >= 0, "shape ", text(), ": axis ", axis, " has a negative size");
    none = none || (*this)[axis] == 0;
  }
  if (none) return 0;
  Index product = 1;
  for (Index axis = 0; axis < rank_; ++axis)
    check(!__builtin_mul_overflow(product, (*this)[axis], &product), "shape ", text(),
          ": the number of elements does not fit 64 bits");
  return product;
}

Shape Shape::row_major() const {
  const bool none = elements() == 0;
  Shape strides = *this;
  Index stride = 1;
  for (Index axis = rank_ - 1; axis >= 0; --axis) {
    strides[axis] = stride;
    // Only a shape without elements can overflow here, and then no stride is ever used.
    if (__builtin_mul_overflow(stride, (*this)[axis], &stride) && none) stride = 0;
  }
  return strides;
}

std::string Shape::text() const {
  std::ostringstream text;
  text << '[';
  for (Index axis = 0; axis < rank_; ++axis) text << (axis ? ", " : "") << (*this)[axis];
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
    check(!overflow && !__builtin_add_overflow(end, step, &end), "view: shape ", shape.text(),
          " with strides ", strides.text(), " reaches beyond 64 bits");
  }
  return reach;
}

void check_inside(std::size_t size, const Shape& shape, const Shape& strides) {
  check(shape.rank() == strides.rank(), "view: shape ", shape.text(), " has ", shape.rank(),
        " axes but strides ", strides.text(), " have ", strides.rank());
  if (shape.elements() == 0) return;
  const Reach reach = reach_of(shape, strides);
  check(reach.first >= 0 && std::cmp_less(reach.last, size), "view: shape ", shape.text(),
        " with strides ", strides.text(), " reaches elements ", reach.first, " to ", reach.last,
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
BasicView<T> BasicView<T>::trusted(T* data, Shape shape, Shape strides) {
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
        " and ", other, " of shape ", shape_.text());
  BasicView view = *this;
  std::swap(view.shape_[axis], view.shape_[other]);
  std::swap(view.strides_[axis], view.strides_[other]);
  return view;
}

template class BasicView<float>;
template class BasicView<const float>;

void Tensor::Free::operator()(float* p) const noexcept {
  release_memory(p, static_cast<std::size_t>(elements) * sizeof(float));
}

Tensor Tensor::uninitialized(Shape shape) {
  Tensor tensor;
  tensor.shape_ = shape;
  tensor.elements_ = shape.elements();
  if (tensor.elements_ == 0) return tensor;
  const Index bytes = checked_product({tensor.elements_, Index{sizeof(float)}});
  auto* numbers = static_cast<float*>(allocate_memory(static_cast<std::size_t>(bytes)));
  tensor.data_ = std::unique_ptr<float[], Free>(numbers, Free(tensor.elements_));
  return tensor;
}

Tensor::Tensor(Shape shape) : Tensor(uninitialized(shape)) {
  if (elements_ != 0) std::memset(data(), 0, numbers().size_bytes());
}

Tensor Tensor::clone() const {
  Tensor copy = uninitialized(shape_);
  if (elements_ != 0) std::memcpy(copy.data(), data(), numbers().size_bytes());
  return copy;
}

MutableView Tensor::view() { return MutableView::trusted(data(), shape_, shape_.row_major()); }
View Tensor::view() const { return View::trusted(data(), shape_, shape_.row_major()); }

}  // namespace rapt
