#include "nn/matmul/packed_matrix.h"

#include <algorithm>
#include <cassert>
#include <type_traits>
#include <utility>

#include "base/flush_denormals.h"
#include "base/sizes.h"
#include "nn/matmul/matrix_lines.h"
#include "nn/matmul/weight.h"

namespace rapt {
using namespace detail;
namespace {

/// Elements of rows that a task multiplies at a time: 256 KiB, which fit L2.
constexpr Index rows_at_once = Index{1} << 16;
/// Multiply-adds of a product that one thread does.
constexpr Index small_product = Index{1} << 17;
/// Panels that a task reads at least: fewer would not pay for packing the rows once more. One strip
/// is packed in no time, and twice the tasks are shared out more evenly.
constexpr Index fewest_panels = 4, fewest_panels_of_a_strip = 2;

/// How a product is cut: into rows, and where these are few also into columns.
struct Cut {
  Index rows, columns;  // of one task
  Index row_parts, column_parts;
};

template <class T>
Cut cut_for(Index rows, Index columns, Index depth, const MatrixKernels<T>& kernels,
            Index workers) {
  Cut cut{};
  const bool small = workers == 1 || rows * columns < small_product / std::max<Index>(1, depth);
  const Index tasks = small ? 1 : 4 * workers;
  const Index most_rows = rows_at_once / kernels.depth / kernels.strip * kernels.strip;
  // Many rows are cut evenly: the last round of tasks keeps all threads busy.
  const Index even = rows >= tasks * most_rows / 4 ? divide_up(rows, tasks) : rows;
  cut.rows = std::min(most_rows, round_up(even, kernels.strip));
  cut.row_parts = divide_up(rows, cut.rows);
  const Index panels = divide_up(columns, kernels.panel);
  const Index wanted = std::max<Index>(1, divide_up(tasks, cut.row_parts));
  const Index fewest = rows <= kernels.strip ? fewest_panels_of_a_strip : fewest_panels;
  const Index per_task = std::max(fewest, divide_up(panels, wanted));
  cut.columns = per_task * kernels.panel;
  cut.column_parts = divide_up(columns, cut.columns);
  return cut;
}

/// Panels that are widened or whose numbers are finished together, while a core's own cache has
/// them.
constexpr Index panels_together = 4;

template <class T>
struct Scratch {
  explicit Scratch(Index size) : numbers(size) {}
  Buffer<T> numbers;
};

/// Bits of a 16-bit type as its numbers.
template <class T>
const T* as_numbers(const std::uint16_t* bits) {
  static_assert(sizeof(T) == sizeof(std::uint16_t) && std::is_standard_layout_v<T>);
  return reinterpret_cast<const T*>(bits);
}

}  // namespace

/// One block of the depth for one task.
template <class T>
struct PackedMatrix::Block {
  Index first, deep;  // depths, filled up to whole units
  Index column;       // the first of the task
  const T* strips;
  T* wide;  // scratch for panels_together panels that have to be widened
};

template <>
const float* PackedMatrix::block<float>(Index depth) const {
  return floats_.data() + depth * width_;
}
template <>
const Bf16* PackedMatrix::block<Bf16>(Index depth) const {
  return bf16_.data() + depth * width_;
}

PackedMatrix::PackedMatrix(const Tensor& weight, const Context& context)
    : kernels_(&kernels_of(context)),
      type_(weight.type()),
      out_(weight.shape()[0]),
      in_(weight.shape()[1]) {
  if (type_ == Type::bf16 && kernels_->has_bf16()) {
    pack<Bf16>(weight, context);
    return;
  }
  pack<float>(weight, context);
  if (type_ == Type::f32) return;
  narrow_ = Buffer<std::uint16_t>(floats_.size());  // the same numbers: they came out of its type
  kernels_->vectors.store(floats_.data(), floats_.size(), type_, narrow_.data());
  floats_ = {};
}

template <class T>
void PackedMatrix::pack(const Tensor& weight, const Context& context) {
  const MatrixKernels<T>& kernels = matrix_kernels<T>(*kernels_);
  width_ = round_up(out_, kernels.unit);
  Buffer<T> numbers(width_ * round_up(in_, kernels.depth_unit));
  const MatrixLines columns{weight.memory(), type_, out_, in_, in_, 1};
  const Index together = panels_together * kernels.panel, parts = divide_up(out_, together);
  for_each_task(context, divide_up(in_, kernels.depth) * parts, [&](Index task, Index) {
    const Index at = task / parts * kernels.depth, first = task % parts * together;
    const Index deep = std::min(kernels.depth, in_ - at);
    kernels.pack_panels(part_of(columns, first, std::min(together, out_ - first), at, deep),
                        numbers.data() + at * width_ + first * round_up(deep, kernels.depth_unit));
  });
  if constexpr (std::is_same_v<T, Bf16>) {
    bf16_ = std::move(numbers);
  } else {
    floats_ = std::move(numbers);
  }
}

Index PackedMatrix::bytes() const {
  return floats_.size() * Index{sizeof(float)} + bf16_.size() * Index{sizeof(Bf16)} +
         narrow_.size() * Index{sizeof(std::uint16_t)};
}

template <class T, class To>
void PackedMatrix::copy_row(const T* blocks, Index row, To* to) const {
  const bool bf16 = in_bf16();
  const Index panel = bf16 ? kernels_->bf16->matrix.panel : kernels_->matrix.panel;
  const Index depth = bf16 ? kernels_->bf16->matrix.depth : kernels_->matrix.depth;
  const Index unit = bf16 ? kernels_->bf16->matrix.depth_unit : kernels_->matrix.depth_unit;
  const Index first = row / panel * panel, column = row - first;
  const Index width = std::min(panel, width_ - first);
  for (Index at = 0; at < in_; at += depth) {
    const Index deep = std::min(depth, in_ - at);
    const T* from = blocks + at * width_ + first * round_up(deep, unit);
    for (Index k = 0; k < deep; ++k) {
      const Index place = bf16 ? (k / 2 * width + column) * 2 + k % 2 : k * width + column;
      to[at + k] = static_cast<To>(from[place]);
    }
  }
}

Tensor PackedMatrix::expanded() const {
  Tensor weight = Tensor::uninitialized({out_, in_}, type_);
  for (Index row = 0; row < out_; ++row) {
    if (in_bf16()) {
      copy_row(bf16_.data(), row, weight.numbers<Bf16>().data() + row * in_);
    } else if (is_widened()) {  // f16 or bf16: bits
      copy_row(narrow_.data(), row, static_cast<std::uint16_t*>(weight.memory()) + row * in_);
    } else {
      copy_row(floats_.data(), row, weight.data() + row * in_);
    }
  }
  return weight;
}

void PackedMatrix::expand_row(Index row, float* to) const {
  assert(0 <= row && row < out_);
  if (in_bf16()) return copy_row(bf16_.data(), row, to);
  if (!is_widened()) return copy_row(floats_.data(), row, to);
  if (type_ == Type::bf16) return copy_row(as_numbers<Bf16>(narrow_.data()), row, to);
  copy_row(as_numbers<F16>(narrow_.data()), row, to);
}

template <>
void PackedMatrix::multiply_panels<Bf16>(const Block<Bf16>& of, Index column,
                                         const MatrixResult& to) const {
  kernels_->bf16->matrix.product(of.strips, block<Bf16>(of.first) + column * of.deep, of.deep, to);
}
template <>
void PackedMatrix::multiply_panels<float>(const Block<float>& of, Index column,
                                          const MatrixResult& to) const {
  const MatrixKernels<float>& kernels = kernels_->matrix;
  const Index place = column * of.deep;
  if (type_ == Type::f32)
    return kernels.product(of.strips, block<float>(of.first) + place, of.deep, to);
  const std::uint16_t* narrow = narrow_.data() + of.first * width_ + place;
  // One strip reads them once, in registers. Several would widen them once each.
  if (to.rows <= kernels.strip) {
    if (type_ == Type::bf16)
      return kernels_->weights.product_bf16(of.strips, as_numbers<Bf16>(narrow), of.deep, to);
    return kernels_->weights.product_f16(of.strips, as_numbers<F16>(narrow), of.deep, to);
  }
  const Index columns = std::min(width_ - column, round_up(to.columns, kernels.unit));
  kernels_->vectors.load(narrow, type_, columns * of.deep, of.wide);
  kernels.product(of.strips, of.wide, of.deep, to);
}

/// A few panels at a time if something is to be done with them before or after the product.
template <class T>
void PackedMatrix::multiply_block(const Block<T>& block, const MatrixResult& to,
                                  decltype(Product::finish) finish) const {
  const bool whole = finish == nullptr && !is_widened();
  const Index step = whole ? to.columns : panels_together * matrix_kernels<T>(*kernels_).panel;
  for (Index column = 0; column < to.columns; column += step) {
    MatrixResult part = to;
    part.data += column;
    part.columns = std::min(step, to.columns - column);
    if (to.bias != nullptr) part.bias += column;
    multiply_panels(block, block.column + column, part);
    for (Index row = 0; finish != nullptr && row < to.rows; ++row) {
      float* numbers = part.data + row * to.stride;
      finish(numbers, part.columns, numbers);
    }
  }
}

/// Numbers of rows that are packed for all tasks: 8 MiB of f32, which the last cache holds.
constexpr Index most_shared = Index{1} << 21;
/// Strips that are packed together.
constexpr Index strips_together = 4;

/// Rows of the left operand in strips. Where several tasks multiply the same rows these are packed
/// once for all of them, before; else each task packs its own, block after block.
template <class T>
class PackedMatrix::Left {
 public:
  Left(const Matrix& a, const Cut& cut, const MatrixKernels<T>& kernels, const Context& context)
      : rows_(rows_of(a)), cut_(cut), kernels_(kernels) {
    const Index size = cut.row_parts * cut.rows * round_up(a.columns, kernels.depth_unit);
    if (cut.column_parts == 1 || a.rows <= kernels.strip || size > most_shared) return;
    shared_ = Buffer<T>(size);
    const Index together = strips_together * kernels.strip, pieces = divide_up(cut.rows, together);
    for_each_task(
        context, divide_up(a.columns, kernels.depth) * cut.row_parts * pieces,
        [&](Index task, Index) {
          const Index at = task / pieces / cut.row_parts * kernels.depth;
          const Index part = task / pieces % cut.row_parts * cut.rows;
          const Index first = task % pieces * together;
          const Index rows = std::min(cut.rows, a.rows - part) - first;
          const Index deep = std::min(kernels.depth, a.columns - at);
          if (rows > 0)
            pack({part + first, std::min(together, rows)}, at,
                 shared_.data() + place(part, at) + first * round_up(deep, kernels.depth_unit));
        });
  }

  /// Those that begin at a row, in the block that begins at a depth; `scratch` if it is needed.
  const T* strips(Index row, Index at, T* scratch) const {
    if (shared_.size() > 0) return shared_.data() + place(row, at);
    pack({row, std::min(cut_.rows, rows_.count - row)}, at, scratch);
    return scratch;
  }

 private:
  Index place(Index row, Index at) const {
    return row * round_up(rows_.depth, kernels_.depth_unit) + at * cut_.rows;
  }
  struct Rows {
    Index first, count;
  };
  void pack(Rows rows, Index at, T* to) const {
    const Index deep = std::min(kernels_.depth, rows_.depth - at);
    kernels_.pack_strips(part_of(rows_, rows.first, rows.count, at, deep), to);
  }

  const MatrixLines rows_;
  const Cut& cut_;
  const MatrixKernels<T>& kernels_;
  Buffer<T> shared_;
};

template <class T>
void PackedMatrix::multiply_by(const Matrix& a, const Product& to, const Context& context) const {
  const MatrixKernels<T>& kernels = matrix_kernels<T>(*kernels_);
  const Cut cut = cut_for(a.rows, out_, in_, kernels, worker_count(context));
  const Left<T> left(a, cut, kernels, context);
  Workers<Scratch<T>> per_worker(context);
  for_each_task(context, cut.row_parts * cut.column_parts, [&](Index task, Index worker) {
    const ProductSession<T> session(*kernels_);
    const Index row = task / cut.column_parts * cut.rows;
    const Index column = task % cut.column_parts * cut.columns;
    const Index most = std::min(kernels.depth, round_up(in_, kernels.depth_unit));
    // Panels first: then both they and the strips after them are aligned.
    const Index widened = is_widened() ? panels_together * kernels.panel * most : 0;
    T* wide = per_worker.get(worker, widened + cut.rows * most).numbers.data();
    MatrixResult result{.data = to.data + row * to.stride + column,
                        .stride = to.stride,
                        .rows = std::min(cut.rows, a.rows - row),
                        .columns = std::min(cut.columns, out_ - column),
                        .add = false,
                        .bias = to.bias == nullptr ? nullptr : to.bias + column};
    for (Index at = 0; at < in_; at += kernels.depth) {
      const Index deep = std::min(kernels.depth, in_ - at);
      const Index padded = round_up(deep, kernels.depth_unit);
      multiply_block<T>({at, padded, column, left.strips(row, at, wide + widened), wide}, result,
                        at + deep == in_ ? to.finish : nullptr);
      result.add = true;
    }
  });
}

void detail::multiply(const Matrix& a, const PackedMatrix& weight, const Product& to,
                      const Context& context) {
  assert(a.columns == weight.in_ && !to.add);
  if (&kernels_of(context) != weight.kernels_ || weight.in_ == 0) {
    Parameter unpacked;
    unpacked.value = weight.expanded();
    return multiply_weight(a, unpacked, to, context);
  }
  if (a.rows == 0 || weight.out_ == 0) return;
  const FlushDenormals guard;
  if (weight.in_bf16()) return weight.multiply_by<Bf16>(a, to, context);
  weight.multiply_by<float>(a, to, context);
}

}  // namespace rapt
