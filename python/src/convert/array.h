#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <span>
#include <vector>

#include "python/src/convert/dl_exchange.h"
#include "rapt/tensor.h"

namespace rapt::python {

namespace nb = nanobind;

/// What the numbers of an array are, beyond those that attention takes.
enum class Element { f32, bf16, f16, f64, i8, i16, i32, i64, u8, boolean, other };

/// An array of the caller, borrowed without a copy: PyTorch tensors, numpy arrays, anything with
/// the buffer protocol or DLPack. Create, copy and destroy it while holding the GIL.
class Array {
 public:
  /// `name` opens error messages, "attend: q", and outlives this. Throws TypeError if the object is
  /// no array in the memory of this machine.
  Array(nb::handle object, const char* name);
  ~Array();
  Array(Array&& other) noexcept;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  const nb::object& object() const { return object_; }
  Index rank() const { return rank_; }
  Index size(Index axis) const { return shape_[axis]; }
  Element element() const { return element_; }
  Index elements() const;

  /// The numbers as an operand of rank 4, straight from the caller's memory if the last axis is
  /// contiguous; otherwise from one copy, which this object keeps. TypeError unless they are f32,
  /// bf16 or f16.
  AnyView operand();
  /// The same for f32 tables: other floats are converted once. Axes of size 1 are put before until
  /// there are `rank`.
  View floats(Index rank);
  /// All numbers in row-major order, whatever they are stored as.
  std::vector<float> to_floats() const;
  std::vector<double> to_doubles() const;
  /// TypeError unless they are integers.
  std::vector<Index> to_indices() const;
  /// Booleans in row-major order, straight from the caller's memory or from `buffer`. TypeError
  /// unless they are booleans.
  std::span<const bool> booleans(std::unique_ptr<bool[]>& buffer) const;

 private:
  void take_rank(Index rank);
  bool row_major() const;
  void take_tensor(const ArrayType& type);
  void take_exchange(const DlExchange& table);
  bool take_buffer();
  bool take_bf16_of_numpy();
  void take_dlpack();
  template <class Read>
  void for_each(const Read& read) const;
  bool straight() const;
  Type number_type() const;

  nb::object object_;
  const char* name_;
  Py_buffer buffer_{};
  nb::ndarray<nb::ro> dlpack_;
  const std::byte* data_ = nullptr;
  Element element_ = Element::other;
  static constexpr Index max_rank = 8;
  Index rank_ = 0;
  Index shape_[max_rank] = {}, strides_[max_rank] = {};  // strides in bytes: any layout
  Tensor copy_;
};

/// "float64" for messages.
const char* text(Element element);
Index bytes_of(Element element);

/// The view with axes 1 and 2 exchanged if the layout is "blhd"; ValueError if it is neither that
/// nor "bhld".
enum class Layout { bhld, blhd };
Layout layout_of(nb::handle text);
template <class V>
BasicAnyView<V> laid_out(const BasicAnyView<V>& view, Layout layout) {
  if (layout == Layout::bhld) return view;
  Shape shape = view.shape(), strides = view.strides();
  std::swap(shape[1], shape[2]);
  std::swap(strides[1], strides[2]);
  return BasicAnyView<V>::unchecked(view.data(), view.type(), shape, strides);
}

}  // namespace rapt::python
