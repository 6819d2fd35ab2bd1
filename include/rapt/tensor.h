#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include "rapt/api.h"
#include "rapt/type.h"

namespace rapt {

/// The one integer of rapt: sizes, strides, positions, counts.
using Index = std::int64_t;

/// Sizes or strides of up to four axes.
class RAPT_API Shape {
 public:
  static constexpr Index max_rank = 4;

  Shape() = default;
  Shape(std::initializer_list<Index> sizes);

  Index rank() const { return rank_; }
  Index operator[](Index axis) const { return sizes_[axis]; }
  Index& operator[](Index axis) { return sizes_[axis]; }
  bool operator==(const Shape&) const = default;

  /// Number of elements. Throws std::invalid_argument on a negative size or if the product does not
  /// fit 64 bits.
  Index elements() const;
  /// Strides of the row-major layout.
  Shape row_major() const;

 private:
  Index sizes_[max_rank] = {};
  Index rank_ = 0;
};

/// "[2, 8, 128, 64]"
RAPT_API std::string to_string(const Shape& shape);

/// Borrowed elements of one type: a pointer, a shape and strides counted in elements.
///
/// The last axis must be contiguous where attention reads it; other strides are free, so [batch,
/// tokens, heads, dim] in memory is a [batch, heads, tokens, dim] view with swapped strides, and a
/// stride of 0 repeats one slice.
template <class T>
class RAPT_API BasicView {
 public:
  BasicView() = default;
  /// Row-major elements. Throws std::invalid_argument if `numbers` is shorter than the shape needs.
  BasicView(std::span<T> numbers, Shape shape);
  /// Any strides. Throws std::invalid_argument if an element is outside `numbers`.
  BasicView(std::span<T> numbers, Shape shape, Shape strides);
  /// Unchecked: the caller guarantees that the memory holds these elements.
  static BasicView unchecked(T* data, Shape shape, Shape strides);

  operator BasicView<const T>() const requires(!std::is_const_v<T>) {
    return BasicView<const T>::unchecked(data_, shape_, strides_);
  }

  T* data() const { return data_; }
  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return strides_; }
  Index size(Index axis) const { return shape_[axis]; }
  Index stride(Index axis) const { return strides_[axis]; }
  bool empty() const { return data_ == nullptr && shape_.rank() == 0; }

  // The axes of attention operands: [batch, heads, tokens, dim].
  Index batch() const { return shape_[0]; }
  Index heads() const { return shape_[1]; }
  Index tokens() const { return shape_[2]; }
  Index dim() const { return shape_[3]; }
  T* row(Index item, Index head, Index token) const {
    return data_ + item * strides_[0] + head * strides_[1] + token * strides_[2];
  }

  /// The same elements with two axes exchanged.
  BasicView swapped(Index axis, Index other) const;

 private:
  T* data_ = nullptr;
  Shape shape_;
  Shape strides_;
};

using View = BasicView<const float>;
using MutableView = BasicView<float>;

class Tensor;

/// Borrowed elements whose type is known at run time. V is void or const void; attention takes
/// these for its operands, and every view and tensor converts implicitly.
template <class V>
class RAPT_API BasicAnyView {
  static constexpr bool constant = std::is_const_v<V>;
  using Byte = std::conditional_t<constant, const std::byte, std::byte>;
  using Owner = std::conditional_t<constant, const Tensor, Tensor>;

 public:
  BasicAnyView() = default;
  template <class T>
  requires(Number<std::remove_const_t<T>> && (constant || !std::is_const_v<T>))
      BasicAnyView(const BasicView<T>& view)
      : data_(view.data()),
        type_(type_of<std::remove_const_t<T>>),
        shape_(view.shape()),
        strides_(view.strides()) {}
  BasicAnyView(Owner& tensor);
  /// Unchecked: the caller guarantees that the memory holds these elements.
  static BasicAnyView unchecked(V* data, Type type, Shape shape, Shape strides);

  operator BasicAnyView<const void>() const requires(!constant) {
    return BasicAnyView<const void>::unchecked(data_, type_, shape_, strides_);
  }

  V* data() const { return data_; }
  Type type() const { return type_; }
  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return strides_; }
  Index size(Index axis) const { return shape_[axis]; }
  Index stride(Index axis) const { return strides_[axis]; }

  // The axes of attention operands: [batch, heads, tokens, dim].
  Index batch() const { return shape_[0]; }
  Index heads() const { return shape_[1]; }
  Index tokens() const { return shape_[2]; }
  Index dim() const { return shape_[3]; }
  V* row(Index item, Index head, Index token) const {
    const Index offset = item * strides_[0] + head * strides_[1] + token * strides_[2];
    return static_cast<Byte*>(data_) + offset * static_cast<Index>(size_of(type_));
  }

 private:
  V* data_ = nullptr;
  Type type_ = Type::f32;
  Shape shape_;
  Shape strides_;
};

using AnyView = BasicAnyView<const void>;
using AnyMutableView = BasicAnyView<void>;

/// Owned elements, row-major, 64-byte aligned; f32 unless said otherwise. Moves are cheap; copying
/// is spelled clone().
class RAPT_API Tensor {
 public:
  Tensor() = default;
  /// Zeros. Throws std::invalid_argument on a bad shape, std::bad_alloc if memory is short.
  explicit Tensor(Shape shape, Type type = Type::f32);
  /// Without the zeros, for elements that are about to be written.
  static Tensor uninitialized(Shape shape, Type type = Type::f32);

  const Shape& shape() const { return shape_; }
  Type type() const { return type_; }
  Index elements() const { return elements_; }
  bool empty() const { return shape_.rank() == 0; }

  // The elements. Throws std::invalid_argument if T is not the tensor's type.
  template <Number T = float>
  T* data() {
    check_type(type_of<T>);
    return static_cast<T*>(memory_.get());
  }
  template <Number T = float>
  const T* data() const {
    check_type(type_of<T>);
    return static_cast<const T*>(memory_.get());
  }
  template <Number T = float>
  std::span<T> numbers() {
    T* first = data<T>();
    return {first, first + elements_};
  }
  template <Number T = float>
  std::span<const T> numbers() const {
    const T* first = data<T>();
    return {first, first + elements_};
  }
  void* memory() { return memory_.get(); }
  const void* memory() const { return memory_.get(); }
  Tensor clone() const;
  /// The same elements in another shape with as many elements; this tensor is empty afterwards.
  Tensor reshaped(Shape shape) &&;
  /// A copy with every number rounded to the type.
  Tensor converted(Type type) const;

  MutableView view() { return MutableView::unchecked(data(), shape_, shape_.row_major()); }
  View view() const { return View::unchecked(data(), shape_, shape_.row_major()); }
  operator View() const { return view(); }
  operator MutableView() { return view(); }

 private:
  struct Free {
    Free() noexcept : bytes(0) {}
    explicit Free(std::size_t count) noexcept : bytes(count) {}
    std::size_t bytes;
    void operator()(void* memory) const noexcept;
  };
  void check_type(Type asked) const {
    if (asked != type_ && elements_ != 0) [[unlikely]]
      wrong_type(asked);
  }
  [[noreturn]] void wrong_type(Type asked) const;
  std::size_t bytes() const { return static_cast<std::size_t>(elements_) * size_of(type_); }

  std::unique_ptr<void, Free> memory_;
  Type type_ = Type::f32;
  Shape shape_;
  Index elements_ = 0;
};

}  // namespace rapt
