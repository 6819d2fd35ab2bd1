#include "attention/backward/backward_tiles.h"

#include <algorithm>

#include "base/indexed_vector.h"

namespace rapt::detail {

ScoreSums join_score_gradients(const Call& call, std::span<const ScoreGradients> parts) {
  const Bias& bias = call.how.bias;
  const Index buckets = bias.table ? bias.table->values.size(0) : 0;
  ScoreSums sums;
  sums.slopes.resize(bias.alibi ? call.heads : 0);
  sums.kerple.resize(bias.kerple ? 2 * call.heads : 0);
  sums.table.resize(buckets * call.heads);
  const Index groups = std::ssize(parts) / std::max<Index>(1, call.batch * call.kv_heads);
  for (Index i = 0; i < std::ssize(parts); ++i) {
    const ScoreGradients& part = parts[to_size(i)];
    for (Index member = 0; member < call.group; ++member) {
      const Index head = i / groups % call.kv_heads * call.group + member;
      if (bias.alibi) sums.slopes[head] += part.slopes[member];
      for (Index axis = 0; axis < (bias.kerple ? 2 : 0); ++axis)
        sums.kerple[axis * call.heads + head] += part.kerple[2 * member + axis];
      for (Index b = 0; b < buckets; ++b)
        sums.table[b * call.heads + head] += part.table[member * buckets + b];
    }
  }
  return sums;
}

template <class T>
BackwardTiles<T>::BackwardTiles(const Call& call)
    : call_(call),
      groups_(call, KeyGroupWorker<T>::group_tiles(call)),
      queries_(call, groups_, packed_width<T>(call.kernels, call.dim)),
      relative_keys_(call.relative.get()),
      relative_values_(call.relative_values.get()) {
  for (Index i = 0; i < call.batch * call.kv_heads * groups_.count(); ++i)
    score_.emplace_back(call);
}

/// Groups of one head in ascending order, a few heads at a time: a task seldom waits for others at
/// a query tile, and sums of few heads are in memory at a time. Tables of relative positions are
/// summed in the order of the tasks, which is then the same for any number of threads.
template <class T>
typename BackwardTiles<T>::KeyGroup BackwardTiles<T>::group_of_task(Index task,
                                                                    const HeadRange& heads) const {
  const bool tables = call_.relative != nullptr || call_.relative_values != nullptr;
  const Index together = tables ? heads.count : std::min(heads.count, 2 * call_.context.threads());
  const Index first = task / (together * groups_.count()) * together;
  const Index count = std::min(together, heads.count - first);
  const Index place = task - first * groups_.count();
  return {heads.first + first + place % count, place / count};
}

template <class T>
void BackwardTiles<T>::abort(const std::exception_ptr& why) {
  queries_.abort(why);
  relative_keys_.abort(why);
  relative_values_.abort(why);
}

template <class T>
void BackwardTiles<T>::run_group(const KeyGroup& group, Index task, KeyGroupWorker<T>& worker,
                                 const GradientViews& operands) {
  const Index item = group.batch_head / call_.kv_heads;
  worker.run(item, group.batch_head % call_.kv_heads, group.number, operands,
             score_[group.batch_head * groups_.count() + group.number]);
  relative_keys_.add(task, worker.relative_keys());
  relative_values_.add(task, worker.relative_values());
}

template <class T>
void BackwardTiles<T>::run(const BackwardInput& input, const GradientViews& operands) {
  Workers<KeyGroupWorker<T>> workers(call_.context);
  const HeadRange heads = call_.computed_heads();
  const Index tasks = heads.count * groups_.count();
  for_each_task(call_.context, tasks, [&](Index task, Index number) {
    const ProductSession<T> session(call_.kernels);
    try {
      run_group(group_of_task(task, heads), tasks_done_ + task,
                workers.get(number, call_, input, groups_, queries_), operands);
    } catch (...) {
      abort(std::current_exception());
      throw;
    }
    call_.progress(number);
  });
  tasks_done_ += tasks;
}

template <class T>
std::unique_ptr<BackwardPass> make_backward_pass(const Call& call) {
  return std::make_unique<BackwardTiles<T>>(call);
}

template class BackwardTiles<float>;
template class BackwardTiles<Bf16>;
template std::unique_ptr<BackwardPass> make_backward_pass<float>(const Call& call);
template std::unique_ptr<BackwardPass> make_backward_pass<Bf16>(const Call& call);

}  // namespace rapt::detail
