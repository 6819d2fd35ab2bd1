#include "rapt/dropout_key.h"

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "base/random.h"
#include "base/sizes.h"
#include "base/views.h"
#include "kernels/context.h"
#include "nn/elementwise.h"

namespace rapt {
using namespace detail;
namespace {

/// Rows of 64 numbers that one task takes.
constexpr Index rows_per_task = 1024;

/// The generator of attention's dropout, whose tiles are 64 columns wide: number i of a tensor is
/// column i % 64 of row i / 64.
DropoutTile tile_of(double rate, const DropoutKey& key, Index first_row) {
  const std::uint64_t seed = key.mixed();
  return {.key = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
          .stream = 0,
          .row = static_cast<std::uint32_t>(first_row),
          .column = 0,
          .threshold = static_cast<std::uint64_t>(rate * 0x1p32),
          .keep = rate < 1 ? static_cast<float>(1 / (1 - rate)) : 0.0f};
}

/// Calls run(first row, first number, numbers) for blocks that cover all numbers, on all threads.
void for_each_dropout_row(const Context& context, Index numbers,
                          const std::function<void(Index, Index, Index)>& run) {
  check(numbers <= Index{1} << 38, "drop: ", numbers, " numbers, expected at most 2^38");
  const Index together = rows_per_task * tile;
  for_each_task(context, divide_up(numbers, together), [&](Index task, Index) {
    run(task * rows_per_task, task * together, std::min(together, numbers - task * together));
  });
}

/// Some numbers of a tensor, the first of them at the start of a row.
struct Stretch {
  Index first, count;
};

/// f32 numbers change where they are; what is not a whole row, or of another type, in a copy.
void drop_block(const AnyMutableView& x, const Stretch& where, DropoutTile how,
                const Kernels& kernels) {
  auto* at =
      static_cast<std::byte*>(x.data()) + where.first * static_cast<Index>(size_of(x.type()));
  Index done = 0;
  if (x.type() == Type::f32) {
    const Index rows = where.count / tile;
    kernels.score.dropout(reinterpret_cast<float*>(at), rows, how);
    done = rows * tile;
    how.row += static_cast<std::uint32_t>(rows);
  }
  for (float scratch[tile]; done < where.count; done += tile, ++how.row) {
    const Index here = std::min(tile, where.count - done);
    void* from = at + done * static_cast<Index>(size_of(x.type()));
    std::fill(scratch, scratch + tile, 0.0f);
    kernels.vectors.load(from, x.type(), here, scratch);
    kernels.score.dropout(scratch, 1, how);
    kernels.vectors.store(scratch, here, x.type(), from);
  }
}

}  // namespace

std::uint64_t DropoutKey::mixed() const { return random_bits(seed, {step, layer, site}); }

void drop(AnyMutableView x, double rate, const DropoutKey& key, const Context& context) {
  check(rate >= 0 && rate <= 1, "drop: rate is ", rate, ", expected 0 to 1");
  check_memory("drop", "x", x);
  const Index count = x.shape().elements();
  check(count == 0 || x.strides() == x.shape().row_major(), "drop: x has strides ", x.strides(),
        ", expected ", x.shape().row_major(), " (row-major)");
  if (rate == 0) return;
  for_each_dropout_row(context, count, [&](Index row, Index first, Index numbers) {
    drop_block(x, {first, numbers}, tile_of(rate, key, row), kernels_of(context));
  });
}

Tensor detail::dropped(const Tensor& x, double rate, const DropoutKey& key,
                       const Context& context) {
  Tensor y = Tensor::uninitialized(x.shape());
  const AnyMutableView all(y);
  for_each_dropout_row(context, x.elements(), [&](Index row, Index first, Index numbers) {
    std::copy_n(x.data() + first, numbers, y.data() + first);
    drop_block(all, {first, numbers}, tile_of(rate, key, row), kernels_of(context));
  });
  return y;
}

}  // namespace rapt
