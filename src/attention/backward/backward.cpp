#include "attention/backward/backward.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>

#include "attention/backward/backward_tiles.h"
#include "base/indexed_vector.h"

namespace rapt::detail {
namespace {

/// Zeros, whatever the type.
void clear_row(const AnyMutableView& out, Index item, Index head, Index i) {
  std::memset(out.row(item, head, i), 0, to_size(out.dim()) * size_of(out.type()));
}

void clear(const AnyMutableView& out) {
  for (Index item = 0; item < out.batch(); ++item)
    for (Index head = 0; head < out.heads(); ++head)
      for (Index i = 0; i < out.tokens(); ++i) clear_row(out, item, head, i);
}

void write(const IndexedVector<double>& sums, Tensor& gradient) {
  std::transform(sums.begin(), sums.end(), gradient.data(),
                 [](double x) { return static_cast<float>(x); });
}

}  // namespace

void clear_unseeing(const Call& call, const AnyMutableView& dq) {
  for (Index t = 0; t < call.query_tiles(); ++t) {
    if (!call.plan->visits(t).empty()) continue;
    for (Index batch_head = 0; batch_head < call.batch * call.heads; ++batch_head) {
      const GradientRows rows =
          query_gradient_rows(call, {batch_head / call.heads, batch_head % call.heads, t}, dq);
      for (Index r = 0; r < rows.count; ++r)
        clear_row(rows.to, rows.item, rows.head, rows.first + r);
    }
  }
}

void write(const ScoreSums& sums, Gradients& gradients) {
  write(sums.slopes, gradients.dslopes);
  write(sums.kerple, gradients.dkerple);
  write(sums.table, gradients.dtable);
}

template <class T>
void run_backward_tiles(const Call& call, const BackwardInput& input, const GradientViews& operands,
                        Gradients& gradients) {
  if (call.rows() == 0 || call.keys == 0) {
    for (const AnyMutableView& out : {operands.dq, operands.dk, operands.dv}) clear(out);
    return;
  }
  BackwardTiles<T> tiles(call);
  tiles.run(input, operands);
  clear_unseeing(call, operands.dq);
  write(join_score_gradients(call, tiles.score_gradients()), gradients);
  tiles.relative_keys().write(call.score_rule.key_gradient_factor(), gradients.drelative_keys);
  tiles.relative_values().write(1, gradients.drelative_values);
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
