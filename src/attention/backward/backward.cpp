#include "attention/backward/backward.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>

#include "attention/backward/key_group_worker.h"
#include "attention/backward/shared_sums.h"
#include "base/indexed_vector.h"

namespace rapt::detail {
namespace {

/// Tables of the score are summed per task and joined in the order of the tasks: same bits for any
/// number of threads.
void join_score_gradients(const Call& call, const IndexedVector<ScoreGradients>& parts,
                          Index groups, Gradients& gradients) {
  const Index tasks = static_cast<Index>(parts.size());
  const auto head_of = [&](Index task, Index member) {
    return task / groups % call.kv_heads * call.group + member;
  };
  IndexedVector<double> slopes(gradients.dslopes.elements());
  IndexedVector<double> kerple(gradients.dkerple.elements());
  IndexedVector<double> table(gradients.dtable.elements());
  const Index buckets = gradients.dtable.empty() ? 0 : gradients.dtable.shape()[0];
  for (Index task = 0; task < tasks; ++task) {
    const ScoreGradients& part = parts[task];
    for (Index member = 0; member < call.group; ++member) {
      const Index head = head_of(task, member);
      if (!slopes.empty()) slopes[head] += part.slopes[member];
      for (Index i = 0; i < (kerple.empty() ? 0 : 2); ++i)
        kerple[i * call.heads + head] += part.kerple[2 * member + i];
      for (Index b = 0; b < buckets; ++b)
        table[b * call.heads + head] += part.table[member * buckets + b];
    }
  }
  const auto write = [](const std::vector<double>& sums, Tensor& gradient) {
    std::transform(sums.begin(), sums.end(), gradient.data(),
                   [](double x) { return static_cast<float>(x); });
  };
  write(slopes, gradients.dslopes);
  write(kerple, gradients.dkerple);
  write(table, gradients.dtable);
}

/// Zeros, whatever the type.
void clear_row(const AnyMutableView& out, Index item, Index head, Index i) {
  std::memset(out.row(item, head, i), 0, to_size(out.dim()) * size_of(out.type()));
}

/// Queries that see nothing have no task that writes their gradient.
void clear_unseeing(const Call& call, const AnyMutableView& dq) {
  for (Index t = 0; t < call.query_tiles(); ++t) {
    if (!call.plan->visits(t).empty()) continue;
    for (Index batch_head = 0; batch_head < call.batch * call.heads; ++batch_head)
      for (Index query = t * tile; query < t * tile + call.tile_rows(t); ++query)
        clear_row(dq, batch_head / call.heads, batch_head % call.heads, query);
  }
}

void clear(const AnyMutableView& out) {
  for (Index item = 0; item < out.batch(); ++item)
    for (Index head = 0; head < out.heads(); ++head)
      for (Index i = 0; i < out.tokens(); ++i) clear_row(out, item, head, i);
}

/// What tasks add to in order.
struct SharedSums {
  SharedSums(const Call& call, Index width)
      : queries(call, width),
        relative_keys(call.relative.get()),
        relative_values(call.relative_values.get()) {}

  void abort(const std::exception_ptr& why) {
    queries.abort(why);
    relative_keys.abort(why);
    relative_values.abort(why);
  }

  QuerySums queries;
  RelativeSums relative_keys, relative_values;
};

/// A key group of a key head.
struct KeyGroup {
  Index batch_head, number;
};

/// Groups of one head in ascending order, a few heads at a time: a task seldom waits for others at
/// a query tile, and sums of few heads are in memory at a time.
KeyGroup group_of_task(Index task, Index batch_heads, Index groups, Index together) {
  const Index first = task / (together * groups) * together;
  const Index count = std::min(together, batch_heads - first);
  const Index place = task - first * groups;
  return {first + place % count, place / count};
}

/// Every key group of every key head, each by one worker at a time.
template <class T>
void run_key_groups(const Call& call, const BackwardInput& input, SharedSums& sums,
                    IndexedVector<ScoreGradients>& parts, const GradientViews& operands) {
  Workers<KeyGroupWorker<T>> workers(call.context);
  const Index batch_heads = call.batch * call.kv_heads;
  const Index groups = static_cast<Index>(parts.size()) / batch_heads;
  // Tables of relative positions are summed in the order of the tasks, which is then the same for
  // any number of threads.
  const bool tables = call.relative != nullptr || call.relative_values != nullptr;
  const Index together = tables ? batch_heads : std::min(batch_heads, 2 * call.context.threads());
  for_each_task(call.context, batch_heads * groups, [&](Index task, Index number) {
    const auto [batch_head, key_group] = group_of_task(task, batch_heads, groups, together);
    ScoreGradients& part = parts[batch_head * groups + key_group];
    const ProductSession<T> session(call.kernels);
    try {
      KeyGroupWorker<T>& worker = workers.get(number, call, input, sums.queries);
      worker.run(batch_head / call.kv_heads, batch_head % call.kv_heads, key_group, operands, part);
      sums.relative_keys.add(task, worker.relative_keys());
      sums.relative_values.add(task, worker.relative_values());
    } catch (...) {
      sums.abort(std::current_exception());
      throw;
    }
  });
}

}  // namespace

template <class T>
void run_backward_tiles(const Call& call, const BackwardInput& input, const GradientViews& operands,
                        Gradients& gradients) {
  if (call.rows() == 0 || call.keys == 0) {
    for (const AnyMutableView& out : {operands.dq, operands.dk, operands.dv}) clear(out);
    return;
  }
  SharedSums sums(call, packed_width<T>(call.kernels, call.dim));
  const Index groups = divide_up(call.key_tiles(), KeyGroupWorker<T>::group_tiles(call));
  IndexedVector<ScoreGradients> parts;
  for (Index i = 0; i < call.batch * call.kv_heads * groups; ++i) parts.emplace_back(call);
  run_key_groups<T>(call, input, sums, parts, operands);
  clear_unseeing(call, operands.dq);
  join_score_gradients(call, parts, groups, gradients);
  sums.relative_keys.write(call.score_rule.key_gradient_factor(), gradients.drelative_keys);
  sums.relative_values.write(1, gradients.drelative_values);
}

template void run_backward_tiles<float>(const Call& call, const BackwardInput& input,
                                        const GradientViews& operands, Gradients& gradients);

template <class T>
void run_backward(const BackwardTask& task, const GradientViews& to, Gradients& gradients) {
  const BackwardInput input(
      task, std::is_same_v<T, Bf16> ? Denominators::in_running_max : Denominators::in_douts);
  std::transform(input.dsinks.begin(), input.dsinks.end(), gradients.dsinks.data(),
                 [](double x) { return static_cast<float>(x); });
  run_backward_tiles<T>(task.call, input, to, gradients);
  const auto& dense = task.call.how.bias.dense;
  if (dense && !dense->fixed) run_dense_gradient(task.call, input, gradients.ddense);
}

template void run_backward<float>(const BackwardTask& task, const GradientViews& to,
                                  Gradients& gradients);
template void run_backward<Bf16>(const BackwardTask& task, const GradientViews& to,
                                 Gradients& gradients);

}  // namespace rapt::detail
