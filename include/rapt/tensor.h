#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

#include "rapt/api.h"

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
  Index operator[](Index axis) const { return sizes_[static_cast<std::size_t>(axis)]; }
  Index& operator[](Index axis) { return sizes_[static_cast<std::size_t>(axis)]; }
  bool operator==(const Shape&) const = default;

  /// Number of elements. Throws std::invalid_argument on a negative size or if the product does not
  /// fit 64 bits.
  Index elements() const;
  /// Strides of the row-major layout.
  Shape row_major() const;
  /// "[2, 8, 128, 64]"
  std::string text() const;

 private:
  std::array<Index, max_rank> sizes_{};
  Index rank_ = 0;
};

/// Borrowed f32 numbers: a pointer, a shape and strides counted in elements.
///
/// The last axis must be contiguous where attention reads it; other strides are free, so [batch,
/// tokens, heads, dim] in memory is a [batch, heads, tokens, dim] view with swapped strides, and a
/// stride of 0 repeats one slice.
template <class T>
class RAPT_API BasicView {
 public:
  BasicView() = default;
  /// Row-major numbers. Throws std::invalid_argument if `numbers` is shorter than the shape needs.
  BasicView(std::span<T> numbers, Shape shape);
  /// Any strides. Throws std::invalid_argument if an element lies outside `numbers`.
  BasicView(std::span<T> numbers, Shape shape, Shape strides);
  /// A pointer the caller vouches for: nothing is known about the memory behind it.
  static BasicView trusted(T* data, Shape shape, Shape strides);

  operator BasicView<const T>() const requires(!std::is_const_v<T>) {
    return BasicView<const T>::trusted(data_, shape_, strides_);
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

  /// The same numbers with two axes exchanged.
  BasicView swapped(Index axis, Index other) const;

 private:
  T* data_ = nullptr;
  Shape shape_;
  Shape strides_;
};

using View = BasicView<const float>;
using MutableView = BasicView<float>;

/// Owned f32 numbers, row-major, 64-byte aligned. Moves are cheap; copying is spelled clone().
class RAPT_API Tensor {
 public:
  Tensor() = default;
  /// Zeros. Throws std::invalid_argument on a bad shape, std::bad_alloc if memory is short.
  explicit Tensor(Shape shape);
  /// The same without the zeros, for numbers that are about to be written.
  static Tensor uninitialized(Shape shape);

  const Shape& shape() const { return shape_; }
  Index elements() const { return elements_; }
  bool empty() const { return shape_.rank() == 0; }
  std::span<float> numbers() { return {data_.get(), static_cast<std::size_t>(elements_)}; }
  std::span<const float> numbers() const {
    return {data_.get(), static_cast<std::size_t>(elements_)};
  }
  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  Tensor clone() const;

  MutableView view();
  View view() const;
  operator View() const { return view(); }
  operator MutableView() { return view(); }

 private:
  struct Free {
    Free() noexcept : elements(0) {}
    explicit Free(Index count) noexcept : elements(count) {}
    Index elements;
    void operator()(float* p) const noexcept;
  };
  std::unique_ptr<float[], Free> data_;
  Shape shape_;
  Index elements_ = 0;
};

}  // namespace rapt
