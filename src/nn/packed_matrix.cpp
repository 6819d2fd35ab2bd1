#include "nn/packed_matrix.h"

#include <algorithm>
#include <cassert>

#include "base/fpmode.h"
#include "base/sizes.h"
#include "kernels/context.h"
#include "nn/matrix_lines.h"
#include "nn/weight.h"

namespace rapt {
namespace {

/// Rows that a task packs at a time: with 256 of depth 256 KiB, which the second cache holds.
constexpr Index most_rows = 256;
/// Multiply-adds of a product that one thread does.
constexpr Index small_product = Index{1} << 17;
/// Panels that a task reads at least: fewer would not pay for packing the rows once more.
constexpr Index fewest_panels = 4;

/// How a product is cut: into rows, and where these are few also into columns.
struct Cut {
  Index rows, columns;  // of one task
  Index row_parts, column_parts;
};

Cut cut_for(Index rows, Index columns, Index depth, const Kernels::MatrixKernels& kernels,
            Index workers) {
  Cut cut{};
  const bool small = workers == 1 || rows * columns < small_product / std::max<Index>(1, depth);
  const Index tasks = small ? 1 : 4 * workers;
  // Many rows are cut evenly: the last round of tasks keeps all threads busy.
  const Index even = rows >= tasks * most_rows / 4 ? divide_up(rows, tasks) : rows;
  cut.rows = std::min(most_rows, round_up(even, kernels.strip));
  cut.row_parts = divide_up(rows, cut.rows);
  const Index panels = divide_up(columns, kernels.panel);
  const Index wanted = std::max<Index>(1, divide_up(tasks, cut.row_parts));
  const Index per_task = std::max(fewest_panels, divide_up(panels, wanted));
  cut.columns = per_task * kernels.panel;
  cut.column_parts = divide_up(columns, cut.columns);
  return cut;
}

/// Panels whose numbers are finished together, while a core's own cache has them.
constexpr Index finished_panels = 4;

/// The last block of the depth, and what its numbers become.
void multiply_and_finish(const Kernels::MatrixKernels& kernels, const float* strips,
                         const float* panels, Index deep, const MatrixResult& to,
                         decltype(Product::finish) finish) {
  const Index step = finished_panels * kernels.panel;
  for (Index column = 0; column < to.columns; column += step) {
    MatrixResult part = to;
    part.data += column;
    part.columns = std::min(step, to.columns - column);
    if (to.bias != nullptr) part.bias += column;
    kernels.product(strips, panels + column * deep, deep, part);
    for (Index row = 0; row < to.rows; ++row) {
      float* numbers = part.data + row * to.stride;
      finish(numbers, part.columns, numbers);
    }
  }
}

struct Room {
  explicit Room(Index size) : numbers(size) {}
  Buffer<float> numbers;
};

}  // namespace

PackedMatrix::PackedMatrix(const Tensor& weight, const Context& context)
    : kernels_(&kernels_of(context)),
      out_(weight.shape()[0]),
      in_(weight.shape()[1]),
      width_(round_up(out_, kernels_->lanes)),
      numbers_(width_ * in_) {
  assert(weight.type() == Type::f32);
  const Kernels::MatrixKernels& kernels = kernels_->matrix;
  const MatrixLines columns{weight.memory(), Type::f32, out_, in_, in_, 1};
  for_each_task(context, divide_up(in_, kernels.depth), [&](Index task, Index) {
    const Index at = task * kernels.depth, deep = std::min(kernels.depth, in_ - at);
    kernels.pack_panels(part_of(columns, 0, out_, at, deep), numbers_.data() + at * width_);
  });
}

Tensor PackedMatrix::expanded() const {
  Tensor weight = Tensor::uninitialized({out_, in_});
  const Index panel = kernels_->matrix.panel, depth = kernels_->matrix.depth;
  for (Index at = 0; at < in_; at += depth) {
    const Index deep = std::min(depth, in_ - at);
    for (Index first = 0; first < out_; first += panel) {
      const Index columns = std::min(panel, out_ - first);
      const Index width = std::min(panel, width_ - first);
      const float* from = block(at) + first * deep;
      for (Index c = 0; c < columns; ++c)
        for (Index k = 0; k < deep; ++k)
          weight.data()[(first + c) * in_ + at + k] = from[k * width + c];
    }
  }
  return weight;
}

void multiply(const Matrix& a, const PackedMatrix& weight, const Product& to,
              const Context& context) {
  assert(a.columns == weight.in_ && !to.add);
  const Kernels& all = kernels_of(context);
  if (&all != weight.kernels_ || weight.in_ == 0) {
    Parameter unpacked;
    unpacked.value = weight.expanded();
    return multiply_weight(a, unpacked, to, context);
  }
  if (a.rows == 0 || weight.out_ == 0) return;
  const FlushDenormals guard;
  const Kernels::MatrixKernels& kernels = all.matrix;
  const Cut cut = cut_for(a.rows, weight.out_, weight.in_, kernels, workers(context));
  Crew<Room> crew(context);
  for_each_task(context, cut.row_parts * cut.column_parts, [&](Index task, Index worker) {
    const Index row = task / cut.column_parts * cut.rows;
    const Index column = task % cut.column_parts * cut.columns;
    const Index rows = std::min(cut.rows, a.rows - row);
    float* room = crew.get(worker, cut.rows * std::min(kernels.depth, weight.in_)).numbers.data();
    MatrixResult result{.data = to.data + row * to.stride + column,
                        .stride = to.stride,
                        .rows = rows,
                        .columns = std::min(cut.columns, weight.out_ - column),
                        .add = false,
                        .bias = to.bias == nullptr ? nullptr : to.bias + column};
    for (Index at = 0; at < weight.in_; at += kernels.depth) {
      const Index deep = std::min(kernels.depth, weight.in_ - at);
      kernels.pack_strips(part_of(rows_of(a), row, rows, at, deep), room);
      const float* panels = weight.block(at) + column * deep;
      if (to.finish != nullptr && at + deep == weight.in_)
        multiply_and_finish(kernels, room, panels, deep, result, to.finish);
      else
        kernels.product(room, panels, deep, result);
      result.add = true;
    }
  });
}

}  // namespace rapt
