#include "nn/matmul/gemm.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "base/buffer.h"
#include "base/flush_denormals.h"
#include "base/sizes.h"
#include "nn/matmul/matrix_lines.h"

namespace rapt::detail {
namespace {

/// Numbers that are packed for all threads at a time: 8 MiB, which the last cache holds.
constexpr Index packed_at_once = Index{1} << 21;
/// Elements that a task packs for itself: 256 KiB, which fit L2.
constexpr Index own_at_once = Index{1} << 16;
/// Numbers that one task packs for all, and lines below which a task is not worth its start.
constexpr Index packed_per_task = Index{1} << 15, fewest_lines = 32;
/// Multiply-adds of a product that one thread does.
constexpr Index small_product = Index{1} << 18;
/// Rows of a left operand up to which a right one that is widened is read unpacked: it would be
/// packed for each of them otherwise. The bits are the same.
constexpr Index few_rows = 8;
/// Numbers of the right operand that a task reads then.
constexpr Index read_per_task = Index{1} << 15;

/// A product in blocks. Of its operands the one with fewer lines is packed for all threads; each
/// task packs a few lines of the other, and goes with them over all of the first. So the larger
/// operand passes memory once, and its packed form never leaves a core's own cache.
template <class T>
class BlockedProduct {
 public:
  BlockedProduct(const Matrix& a, const Matrix& b, const Product& to, const Context& context)
      : context_(context),
        kernels_(matrix_kernels<T>(kernels_of(context))),
        to_(to),
        depth_(a.columns),
        rows_{rows_of(a), kernels_.strip, kernels_.strip, kernels_.pack_strips},
        columns_{rows_of(b.transposed()), kernels_.panel, kernels_.unit, kernels_.pack_panels},
        shared_(a.rows < b.columns ? rows_ : columns_),
        own_(a.rows < b.columns ? columns_ : rows_),
        width_(round_up(shared_.lines.count, shared_.unit)),
        chunk_(std::min(
            depth_, std::max<Index>(1, packed_at_once / width_ / kernels_.depth) * kernels_.depth)),
        packed_(
            static_cast<Index>(std::bit_ceil(static_cast<std::uint64_t>(width_ * padded(chunk_))))),
        per_worker_(context) {}

  void run() {
    const Index lines = lines_per_task(), count = own_.lines.count;
    for (Index first = 0; first < depth_; first += chunk_) {
      const Index deep = std::min(chunk_, depth_ - first);
      pack_shared(first, deep);
      for_each_task(context_, divide_up(count, lines), [&](Index task, Index worker) {
        const ProductSession<T> session(kernels_of(context_));
        T* scratch = per_worker_.get(worker, own_at_once).numbers.data();
        multiply_lines(task * lines, std::min(lines, count - task * lines), {first, deep}, scratch);
      });
    }
  }

 private:
  /// Rows of the left operand or columns of the right one.
  struct Side {
    MatrixLines lines;
    Index group, unit;  // lines stored together, and what the last group is rounded up to
    void (*pack)(const MatrixLines& lines, T* out) noexcept;
  };
  struct Depths {
    Index first, count;
  };
  struct Scratch {
    explicit Scratch(Index size) : numbers(size) {}
    Buffer<T> numbers;
  };

  Index padded(Index deep) const { return round_up(deep, kernels_.depth_unit); }

  /// Depends on the number of threads, as no bit of the result does.
  Index lines_per_task() const {
    const Index most = own_at_once / kernels_.depth / own_.group * own_.group;
    if (own_.lines.count * shared_.lines.count < small_product / depth_) return most;
    const Index even = divide_up(own_.lines.count, 4 * worker_count(context_));
    return std::min(most, round_up(std::max(even, fewest_lines), own_.group));
  }

  /// Groups of one block of the depth are contiguous, in the order of the blocks.
  void pack_shared(Index first, Index deep) {
    const Index lines = round_up(packed_per_task / kernels_.depth, shared_.group);
    const Index parts = divide_up(shared_.lines.count, lines);
    for_each_task(context_, divide_up(deep, kernels_.depth) * parts, [&](Index task, Index) {
      const Index at = task / parts * kernels_.depth, line = task % parts * lines;
      const Index block = std::min(kernels_.depth, deep - at);
      const Index count = std::min(lines, shared_.lines.count - line);
      shared_.pack(part_of(shared_.lines, line, count, first + at, block),
                   packed_.data() + at * width_ + line * padded(block));
    });
  }

  /// Lines [line, line + count) of a task's own side with all of the other.
  void multiply_lines(Index line, Index count, Depths depths, T* scratch) {
    const bool own_rows = &own_ == &rows_;
    MatrixResult result{.data = to_.data + line * (own_rows ? to_.stride : 1),
                        .stride = to_.stride,
                        .rows = own_rows ? count : rows_.lines.count,
                        .columns = own_rows ? columns_.lines.count : count,
                        .add = to_.add || depths.first > 0,
                        .bias = to_.bias == nullptr || own_rows ? to_.bias : to_.bias + line};
    for (Index at = 0; at < depths.count; at += kernels_.depth) {
      const Index block = std::min(kernels_.depth, depths.count - at);
      const T* shared = packed_.data() + at * width_;
      own_.pack(part_of(own_.lines, line, count, depths.first + at, block), scratch);
      kernels_.product(own_rows ? scratch : shared, own_rows ? shared : scratch, padded(block),
                       result);
      result.add = true;
    }
  }

  const Context& context_;
  const MatrixKernels<T>& kernels_;
  const Product& to_;
  const Index depth_;
  const Side rows_, columns_;
  const Side& shared_;  // packed for all
  const Side& own_;     // packed by each task
  const Index width_;   // lines of the shared side with those that fill up its last group
  const Index chunk_;   // depth that is packed at a time
  Buffer<T> packed_;
  Workers<Scratch> per_worker_;
};

/// Few rows times contiguous columns.
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
      kernels.vectors.load(part_of(rows_of(a), r, 1, 0, a.columns).data, a.type, a.columns,
                           wide.data() + r * a.columns);
    left = wide.data();
    stride = a.columns;
  }
  const Index group = kernels.matrix.unit;
  const Index columns = std::max(group, read_per_task / a.columns / group * group);
  for_each_task(context, divide_up(b.columns, columns), [&](Index task, Index) {
    const Index first = task * columns, count = std::min(columns, b.columns - first);
    kernels.weights.gemv(left, stride, part_of(right, first, count, 0, right.depth),
                         {.data = to.data + first,
                          .stride = to.stride,
                          .rows = a.rows,
                          .columns = count,
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

/// As numbers of type T.
template <class T>
void multiply_as(const Matrix& a, const Matrix& b, const Product& to, const Context& context) {
  assert(a.columns == b.rows && (a.row_step == 1 || a.column_step == 1) &&
         (b.row_step == 1 || b.column_step == 1) && (!to.add || to.bias == nullptr) &&
         to.finish == nullptr);
  if (a.rows == 0 || b.columns == 0) return;
  if (a.columns == 0) return write_empty_sums(a, b, to);
  const FlushDenormals guard;
  if constexpr (std::is_same_v<T, float>)
    if (a.rows <= few_rows && a.column_step == 1 && b.row_step == 1)
      return multiply_few_rows(a, b, to, context);
  BlockedProduct<T>(a, b, to, context).run();
}

}  // namespace

void multiply(const Matrix& a, const Matrix& b, const Product& to, const Context& context) {
  multiply_as<float>(a, b, to, context);
}

void multiply_bf16(const Matrix& a, const Matrix& b, const Product& to, const Context& context) {
  if (!kernels_of(context).has_bf16()) return multiply(a, b, to, context);
  multiply_as<Bf16>(a, b, to, context);
}

}  // namespace rapt::detail
