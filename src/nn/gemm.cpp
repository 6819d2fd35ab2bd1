#include "nn/gemm.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "base/buffer.h"
#include "base/fpmode.h"
#include "base/sizes.h"
#include "kernels/context.h"

namespace rapt {
namespace {

/// Numbers of the right operand that are packed at a time: 8 MiB, which the last cache holds.
constexpr Index packed_at_once = Index{1} << 21;
/// Numbers of a block of the left operand, which the second cache holds.
constexpr Index strips_at_once = Index{1} << 15;
/// Columns that one task packs, and rows of the result below which a task is not worth its start.
constexpr Index panels_per_task = 8, fewest_rows = 32;
/// Multiply-adds of a product that one thread does.
constexpr Index small_product = Index{1} << 18;
/// Rows of a left operand up to which the right one is read as it lies.
constexpr Index few_rows = 8;
/// Numbers of the right operand that a task reads then.
constexpr Index read_per_task = Index{1} << 15;

MatrixLines rows_of(const Matrix& m) {
  return {m.data, m.type, m.rows, m.columns, m.row_step, m.column_step};
}

/// Lines [line, line + count) over depths [depth, depth + deep).
MatrixLines part_of(const MatrixLines& all, Index line, Index count, Index depth, Index deep) {
  MatrixLines part = all;
  const Index offset = line * all.step + depth * all.depth_step;
  part.data =
      static_cast<const std::byte*>(all.data) + offset * static_cast<Index>(size_of(all.type));
  part.count = count;
  part.depth = deep;
  return part;
}

/// A product in blocks. Of its operands the one with fewer lines becomes panels that all threads
/// share; each task packs a few lines of the other, and goes with them over all panels. So the
/// larger operand passes memory once and its packed form never leaves a core's own cache.
class BlockedProduct {
 public:
  BlockedProduct(const Matrix& a, const Matrix& b, const Product& to, const Context& context)
      : context_(context),
        kernels_(kernels_of(context).matrix),
        to_(to),
        turned_(a.rows < b.columns),
        left_(rows_of(turned_ ? b.transposed() : a)),
        right_(rows_of(turned_ ? a : b.transposed())),
        width_(round_up(right_.count, kernels_of(context).lanes)),
        chunk_(std::min(left_.depth, std::max<Index>(1, packed_at_once / width_ / kernels_.depth) *
                                         kernels_.depth)),
        panels_(Index(std::bit_ceil(static_cast<std::uint64_t>(width_ * chunk_)))),
        crew_(context) {}

  void run() {
    const Index rows = rows_per_task();
    for (Index first = 0; first < left_.depth; first += chunk_) {
      const Index deep = std::min(chunk_, left_.depth - first);
      pack_panels(first, deep);
      for_each_task(context_, divide_up(left_.count, rows), [&](Index task, Index worker) {
        Strips& strips = crew_.get(worker, strips_at_once);
        multiply_rows(task * rows, std::min(rows, left_.count - task * rows), first, deep, strips);
      });
    }
  }

 private:
  struct Strips {
    explicit Strips(Index size) : numbers(size) {}
    Buffer<float> numbers;
  };

  /// Depends on the number of threads, as no bit of the result does.
  Index rows_per_task() const {
    const Index most = strips_at_once / kernels_.depth / kernels_.strip * kernels_.strip;
    if (left_.count * right_.count < small_product / left_.depth) return most;
    const Index even = divide_up(left_.count, 4 * workers(context_));
    return std::min(most, round_up(std::max(even, fewest_rows), kernels_.strip));
  }

  /// Panels of a block of the depth lie together, in the order of the blocks.
  void pack_panels(Index first, Index deep) {
    const Index columns = panels_per_task * kernels_.panel;
    const Index groups = divide_up(right_.count, columns);
    for_each_task(context_, divide_up(deep, kernels_.depth) * groups, [&](Index task, Index) {
      const Index at = task / groups * kernels_.depth, column = task % groups * columns;
      const Index block = std::min(kernels_.depth, deep - at);
      kernels_.pack_panels(
          part_of(right_, column, std::min(columns, right_.count - column), first + at, block),
          panels_.data() + at * width_ + column * block);
    });
  }

  void multiply_rows(Index row, Index rows, Index first, Index deep, Strips& strips) {
    MatrixResult result{.data = to_.data + (turned_ ? row : row * to_.stride),
                        .stride = to_.stride,
                        .rows = rows,
                        .columns = right_.count,
                        .turned = turned_,
                        .add = to_.add || first > 0,
                        .bias = to_.bias == nullptr || !turned_ ? to_.bias : to_.bias + row};
    for (Index at = 0; at < deep; at += kernels_.depth) {
      const Index block = std::min(kernels_.depth, deep - at);
      kernels_.pack_strips(part_of(left_, row, rows, first + at, block), strips.numbers.data());
      kernels_.product(strips.numbers.data(), panels_.data() + at * width_, block, result);
      result.add = true;
    }
  }

  const Context& context_;
  const Kernels::MatrixKernels& kernels_;
  const Product& to_;
  bool turned_;        // the result is computed column by column
  MatrixLines left_;   // becomes strips
  MatrixLines right_;  // becomes panels
  Index width_;        // of all panels together
  Index chunk_;        // depth that is packed at a time
  Buffer<float> panels_;
  Crew<Strips> crew_;
};

/// Few rows times columns that lie one after the other.
void multiply_few_rows(const Matrix& a, const Matrix& b, const Product& to,
                       const Context& context) {
  const Kernels& kernels = kernels_of(context);
  const MatrixLines right = rows_of(b.transposed());
  const float* left = static_cast<const float*>(a.data);
  Index stride = a.row_step;
  Buffer<float> wide;
  if (a.type != Type::f32) {
    wide = Buffer<float>(a.rows * a.columns);
    for (Index r = 0; r < a.rows; ++r)
      kernels.load_numbers(part_of(rows_of(a), r, 1, 0, a.columns).data, a.type, a.columns,
                           wide.data() + r * a.columns);
    left = wide.data();
    stride = a.columns;
  }
  const Index columns = std::max<Index>(4, read_per_task / a.columns / 4 * 4);
  for_each_task(context, divide_up(b.columns, columns), [&](Index task, Index) {
    const Index first = task * columns, count = std::min(columns, b.columns - first);
    kernels.matrix.rows(left, stride, part_of(right, first, count, 0, right.depth),
                        {.data = to.data + first,
                         .stride = to.stride,
                         .rows = a.rows,
                         .columns = count,
                         .turned = false,
                         .add = to.add,
                         .bias = to.bias == nullptr ? nullptr : to.bias + first});
  });
}

/// What a product over no depth is.
void write_empty_sums(const Matrix& a, const Matrix& b, const Product& to) {
  if (to.add) return;
  for (Index r = 0; r < a.rows; ++r)
    for (Index c = 0; c < b.columns; ++c)
      to.data[r * to.stride + c] = to.bias == nullptr ? 0 : to.bias[c];
}

}  // namespace

void multiply(const Matrix& a, const Matrix& b, const Product& to, const Context& context) {
  assert(a.columns == b.rows && (a.row_step == 1 || a.column_step == 1) &&
         (b.row_step == 1 || b.column_step == 1) && (!to.add || to.bias == nullptr));
  if (a.rows == 0 || b.columns == 0) return;
  if (a.columns == 0) return write_empty_sums(a, b, to);
  const FlushDenormals guard;
  if (a.rows <= few_rows && a.column_step == 1 && b.row_step == 1)
    return multiply_few_rows(a, b, to, context);
  BlockedProduct(a, b, to, context).run();
}

}  // namespace rapt
