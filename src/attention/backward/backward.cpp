#include "attention/backward/backward.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "attention/backward/key_group.h"
#include "attention/backward/shared_sums.h"

namespace rapt {
namespace {

/// Tables of the score are summed per task and joined in the order of the tasks: same bits for any
/// number of threads.
void join_score_gradients(const Call& call, const std::vector<ScoreGradients>& parts, Index groups,
                          Gradients& gradients) {
  const Index tasks = static_cast<Index>(parts.size());
  const auto head_of = [&](Index task, Index member) {
    return task / groups % call.kv_heads * call.group + member;
  };
  std::vector<double> slopes(static_cast<std::size_t>(gradients.dslopes.elements()));
  std::vector<double> kerple(static_cast<std::size_t>(gradients.dkerple.elements()));
  std::vector<double> table(static_cast<std::size_t>(gradients.dtable.elements()));
  const Index buckets = gradients.dtable.empty() ? 0 : gradients.dtable.shape()[0];
  for (Index task = 0; task < tasks; ++task) {
    const ScoreGradients& part = parts[static_cast<std::size_t>(task)];
    for (Index member = 0; member < call.group; ++member) {
      const Index head = head_of(task, member);
      if (!slopes.empty()) slopes[static_cast<std::size_t>(head)] += part.slopes[member];
      for (Index i = 0; i < (kerple.empty() ? 0 : 2); ++i)
        kerple[static_cast<std::size_t>(i * call.heads + head)] += part.kerple[2 * member + i];
      for (Index b = 0; b < buckets; ++b) {
        table[static_cast<std::size_t>(b * call.heads + head)] += part.table[member * buckets + b];
      }
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
  std::memset(out.row(item, head, i), 0, static_cast<std::size_t>(out.dim()) * size_of(out.type()));
}

/// Queries that see nothing have no task that writes their gradient.
void clear_unseeing(const Call& call, const AnyMutableView& dq) {
  for (Index t = 0; t < call.query_tiles(); ++t) {
    if (!call.plan->visits(t).empty()) continue;
    for (Index owner = 0; owner < call.batch * call.heads; ++owner)
      for (Index query = t * tile; query < t * tile + call.tile_rows(t); ++query)
        clear_row(dq, owner / call.heads, owner % call.heads, query);
  }
}

void clear(const AnyMutableView& out) {
  for (Index item = 0; item < out.batch(); ++item)
    for (Index head = 0; head < out.heads(); ++head)
      for (Index i = 0; i < out.tokens(); ++i) clear_row(out, item, head, i);
}

/// What tasks add to in turns.
struct SharedSums {
  explicit SharedSums(const Call& call)
      : queries(call),
        relative_keys(call.relative.get()),
        relative_values(call.relative_values.get()) {}

  void give_up(const std::exception_ptr& why) {
    queries.give_up(why);
    relative_keys.give_up(why);
    relative_values.give_up(why);
  }

  QuerySums queries;
  RelativeSums relative_keys, relative_values;
};

/// A key group of a key head.
struct KeyGroup {
  Index owner, number;
};

/// Groups of one head in ascending order, a few heads side by side: a task seldom waits for its
/// turn at a query tile, and sums of few heads are in memory at a time.
KeyGroup group_of_task(Index task, Index owners, Index groups, Index together) {
  const Index first = task / (together * groups) * together;
  const Index count = std::min(together, owners - first);
  const Index place = task - first * groups;
  return {first + place % count, place / count};
}

/// Every key group of every key head, each by one worker at a time.
void run_key_groups(const Call& call, const BackwardInput& input, SharedSums& sums,
                    std::vector<ScoreGradients>& parts, const GradientViews& operands) {
  Crew<KeyGroupWorker> crew(call.context);
  const Index owners = call.batch * call.kv_heads;
  const Index groups = static_cast<Index>(parts.size()) / owners;
  // Tables of relative positions are summed in the order of the tasks, which is then the same for
  // any number of threads.
  const bool tables = call.relative != nullptr || call.relative_values != nullptr;
  const Index together = tables ? owners : std::min(owners, 2 * call.context.threads());
  for_each_task(call.context, owners * groups, [&](Index task, Index worker) {
    const auto [owner, key_group] = group_of_task(task, owners, groups, together);
    ScoreGradients& part = parts[static_cast<std::size_t>(owner * groups + key_group)];
    const PairSession session(call.pairs);
    try {
      KeyGroupWorker& hand = crew.get(worker, call, input, sums.queries);
      hand.run(owner / call.kv_heads, owner % call.kv_heads, key_group, operands, part);
      sums.relative_keys.add(task, hand.relative_keys());
      sums.relative_values.add(task, hand.relative_values());
    } catch (...) {
      sums.give_up(std::current_exception());
      throw;
    }
  });
}

}  // namespace

void run_backward(const Call& call, const BackwardInput& input, const GradientViews& operands,
                  Gradients& gradients) {
  if (call.rows() == 0 || call.keys == 0) {
    for (const AnyMutableView& out : {operands.dq, operands.dk, operands.dv}) clear(out);
    return;
  }
  SharedSums sums(call);
  const Index groups = divide_up(call.key_tiles(), KeyGroupWorker::group_tiles(call));
  std::vector<ScoreGradients> parts;
  for (Index i = 0; i < call.batch * call.kv_heads * groups; ++i) parts.emplace_back(call);
  run_key_groups(call, input, sums, parts, operands);
  clear_unseeing(call, operands.dq);
  join_score_gradients(call, parts, groups, gradients);
  sums.relative_keys.write(call.rule.key_gradient_factor(), gradients.drelative_keys);
  sums.relative_values.write(1, gradients.drelative_values);
}

}  // namespace rapt
