#include "positions/rope_rotation.h"

#include <algorithm>
#include <cstdlib>

#include "base/sizes.h"

namespace rapt {
using namespace detail;
namespace {

/// Below this, waking other threads costs more than they save.
constexpr Index worth_threads = 1 << 16;

/// Tokens of a task: long runs of memory, but enough tasks for all threads.
Index task_tokens(const AnyView& in, const Context& context) {
  const Index rows = in.batch() * in.tokens();
  return std::clamp<Index>(rows / (8 * worker_count(context)), 8, rope_block);
}

/// All heads of `count` tokens. The inner loop follows the axis whose rows are closer in memory.
void rotate_block(const RopeRotation& rotation, Index item, Index first, Index count,
                  const float* const* cos_sin, const Kernels& kernels) {
  const auto& [out, in, pairs, layout, direction] = rotation;
  const bool over_heads = std::abs(in.stride(1)) < std::abs(in.stride(2));
  const Index axis = over_heads ? 1 : 2;
  RotaryRows rows{.from = nullptr,
                  .from_type = in.type(),
                  .from_stride = in.stride(axis),
                  .to = nullptr,
                  .to_type = out.type(),
                  .to_stride = out.stride(axis),
                  .count = over_heads ? in.heads() : count,
                  .dim = in.dim(),
                  .pairs = pairs,
                  .cos_sin = cos_sin,
                  .cos_sin_step = over_heads ? 0 : 1,
                  .inverse = direction == RotaryDirection::backward};
  const auto run = layout == RopeLayout::half_split ? kernels.rope.rotate_half_split
                                                    : kernels.rope.rotate_interleaved;
  for (Index i = 0; i < (over_heads ? count : in.heads()); ++i) {
    const Index head = over_heads ? 0 : i;
    const Index token = over_heads ? first + i : first;
    rows.from = in.row(item, head, token);
    rows.to = out.row(item, head, token);
    rows.cos_sin = cos_sin + (over_heads ? i : 0);
    run(rows);
  }
}

}  // namespace

void detail::rotate(const RopeRotation& rotation, const LoadCosSin& load, const Context& context) {
  const AnyView& in = rotation.in;
  const Index block = task_tokens(in, context);
  const Index blocks = divide_up(in.tokens(), block);
  const auto run = [&](Index task, Index worker) {
    const Index item = task / blocks;
    const Index first = task % blocks * block;
    const Index count = std::min(block, in.tokens() - first);
    const float* cos_sin[rope_block];
    load(item, first, count, worker, cos_sin);
    rotate_block(rotation, item, first, count, cos_sin, kernels_of(context));
  };
  const Index tasks = in.batch() * blocks;
  if (in.shape().elements() >= worth_threads) return for_each_task_at_home(context, tasks, run);
  for (Index task = 0; task < tasks; ++task) run(task, 0);
}

}  // namespace rapt
