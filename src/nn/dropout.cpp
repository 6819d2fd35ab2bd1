#include "rapt/dropout.h"

#include <algorithm>

#include "base/check.h"
#include "base/fpmode.h"
#include "base/random.h"
#include "base/sizes.h"
#include "base/views.h"
#include "kernels/context.h"

namespace rapt {
namespace {

/// Rows of 64 numbers that one task takes.
constexpr Index rows_per_task = 1024;

/// The generator of attention's dropout, whose tiles are 64 columns wide: number i of a tensor is
/// column i % 64 of row i / 64.
DropTile tile_of(double rate, const DropoutKey& key, Index first_row) {
  const std::uint64_t seed = key.mixed();
  return {.key = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
          .stream = 0,
          .row = static_cast<std::uint32_t>(first_row),
          .column = 0,
          .threshold = static_cast<std::uint64_t>(rate * 0x1p32),
          .keep = rate < 1 ? static_cast<float>(1 / (1 - rate)) : 0.0f};
}

}  // namespace

std::uint64_t DropoutKey::mixed() const { return random_bits(seed, {step, layer, site}); }

void drop(AnyMutableView x, double rate, const DropoutKey& key, const Context& context) {
  check(rate >= 0 && rate <= 1, "drop: rate is ", rate, ", expected 0 to 1");
  check_memory("drop", "x", x);
  const Index count = x.shape().elements();
  check(count == 0 || x.strides() == x.shape().row_major(), "drop: x has strides ", x.strides(),
        ", expected ", x.shape().row_major(), " (row-major)");
  check(count <= Index{1} << 38, "drop: ", count, " numbers, expected at most 2^38");
  if (rate == 0) return;
  const FlushDenormals guard;
  const Kernels& kernels = kernels_of(context);
  const Index rows = divide_up(count, tile);
  for_each_task(context, divide_up(rows, rows_per_task), [&](Index task, Index) {
    float room[tile];
    for (Index row = task * rows_per_task; row < std::min(rows, (task + 1) * rows_per_task);
         ++row) {
      const Index here = std::min(tile, count - row * tile);
      void* at =
          static_cast<std::byte*>(x.data()) + row * tile * static_cast<Index>(size_of(x.type()));
      std::fill(room, room + tile, 0.0f);
      kernels.load_numbers(at, x.type(), here, room);
      kernels.drop(room, 1, tile_of(rate, key, row));
      kernels.store_numbers(room, here, x.type(), at);
    }
  });
}

}  // namespace rapt
