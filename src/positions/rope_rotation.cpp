#include "positions/rope_rotation.h"

#include <algorithm>
#include <cstdlib>

#include "base/sizes.h"

namespace rapt {
namespace {

/// Below so many numbers waking other threads costs more than they save.
constexpr Index worth_threads = 1 << 16;

/// Tokens of a task: long runs of memory, but enough tasks for all threads.
Index task_tokens(const AnyView& in, const Context& context) {
  const Index rows = in.batch() * in.tokens();
  return std::clamp<Index>(rows / (8 * workers(context)), 8, rope_block);
}

/// All heads of `count` tokens. The inner loop goes along the axis whose rows lie closer together.
void rotate_block(const Rotation& rotation, Index item, Index first, Index count,
                  const float* const* turns, const Kernels& kernels) {
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
                  .turns = turns,
                  .turn_step = over_heads ? 0 : 1,
                  .back = direction == RotaryDirection::backward};
  const auto run = layout == RopeLayout::half_split ? kernels.rotate_far : kernels.rotate_near;
  for (Index i = 0; i < (over_heads ? count : in.heads()); ++i) {
    const Index head = over_heads ? 0 : i;
    const Index token = over_heads ? first + i : first;
    rows.from = in.row(item, head, token);
    rows.to = out.row(item, head, token);
    rows.turns = turns + (over_heads ? i : 0);
    run(rows);
  }
}

}  // namespace

void rotate(const Rotation& rotation, const TakeTurns& take, const Context& context) {
  const AnyView& in = rotation.in;
  const Index block = task_tokens(in, context);
  const Index blocks = divide_up(in.tokens(), block);
  const auto run = [&](Index task, Index worker) {
    const Index item = task / blocks;
    const Index first = task % blocks * block;
    const Index count = std::min(block, in.tokens() - first);
    const float* turns[rope_block];
    take(item, first, count, worker, turns);
    rotate_block(rotation, item, first, count, turns, kernels_of(context));
  };
  const Index tasks = in.batch() * blocks;
  if (in.shape().elements() >= worth_threads) return for_each_task_at_home(context, tasks, run);
  for (Index task = 0; task < tasks; ++task) run(task, 0);
}

}  // namespace rapt
