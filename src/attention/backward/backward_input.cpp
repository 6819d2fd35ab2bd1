#include <cmath>
#include <limits>

#include "attention/backward/backward.h"
#include "base/indexed_vector.h"

#include "base/numerics.h"

namespace rapt::detail {
namespace {

/// The row itself if it is f32, or its numbers in `scratch`.
const float* floats(const Kernels& kernels, Type type, const void* row, Index count,
                    float* scratch) {
  if (type == Type::f32) return static_cast<const float*>(row);
  kernels.vectors.load(row, type, count, scratch);
  return scratch;
}

double dot(const Call& call, const AnyView& a, const AnyView& b, Index item, Index head,
           Index query) {
  float scratch[2][max_dim];
  const Index count = call.value_dim;
  const float* x = floats(call.kernels, a.type(), a.row(item, head, query), count, scratch[0]);
  const float* y = floats(call.kernels, b.type(), b.row(item, head, query), count, scratch[1]);
  double sum = 0;
  for (Index i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  return sum;
}

double slope(const View& dlse, Index item, Index head, Index query) {
  return dlse.empty() ? 0.0 : static_cast<double>(*dlse.row(item, head, query));
}

/// As f32; any NaN as one that survives rounding to bf16.
float plain_nan(double x) {
  return std::isnan(x) ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(x);
}

/// The denominator of a row as sum * 2^max, and sum(dout * out).
struct RowInput {
  double max, sum, mean;
  bool seen() const { return max != minus_infinity || sum != 0; }
};

RowInput row_input(const Rows& rows, Index row, double mean) {
  return {static_cast<double>(element(rows.max, row)), element(rows.sum, row), mean};
}

void set_row(BackwardInput& input, Denominators denominators, Index row, const RowInput& from) {
  if (!from.seen()) {
    input.running_max[row] = input.delta[row] = 0;
    input.inverse_sum[row] = 0;
  } else if (denominators == Denominators::in_douts) {
    input.running_max[row] = static_cast<float>(from.max);
    input.inverse_sum[row] = 1 / from.sum;
    input.delta[row] = static_cast<float>(from.mean / from.sum);
  } else {
    input.running_max[row] = plain_nan(from.max + std::log2(from.sum));
    input.inverse_sum[row] = 1;
    input.delta[row] = plain_nan(from.mean);
  }
}

}  // namespace

BackwardInput::BackwardInput(const BackwardTask& task, Denominators denominators)
    : dout(task.dout),
      running_max(task.call.rows()),
      inverse_sum(task.call.rows()),
      delta(task.call.rows()) {
  const Call& call = task.call;
  const bool sinks = call.score_rule.has_sinks();
  sink_parts = Buffer<double>(sinks ? call.rows() : 0);
  const Index batch_heads = call.batch * call.heads;
  for_each_task(call.context, batch_heads * call.query_tiles(), [&](Index number, Index) {
    const Index item = number % batch_heads / call.heads;
    const Index head = number % call.heads;
    const Index first = number / batch_heads * tile;
    for (Index query = first; query < std::min(first + tile, call.queries); ++query) {
      const Index row = call.row(item, head, query);
      // Every probability is the derivative of lse, as the mean is subtracted under every one.
      const RowInput from = row_input(
          task.rows, row,
          dot(call, dout, task.out, item, head, query) - slope(task.dlse, item, head, query));
      set_row(*this, denominators, row, from);
      if (!sinks) continue;
      const double share = std::exp2(call.score_rule.sink_log2(head) - from.max) / from.sum;
      sink_parts[row] = from.seen() ? -from.mean * share : 0.0;
    }
  });
  if (!sinks) return;
  dsinks.assign(call.heads, 0.0);
  for (Index row = 0; row < call.rows(); ++row) {
    dsinks[row / call.queries % call.heads] += sink_parts[row];
  }
}

BackwardInput::BackwardInput(const AnyView& dout_, Index rows)
    : dout(dout_), running_max(rows), inverse_sum(rows), delta(rows) {}

BackwardInput::BackwardInput(const Call& call, AnyView dout_, AnyView out, const Rows& rows,
                             Index first_row)
    : dout(dout_), running_max(call.rows()), inverse_sum(call.rows()), delta(call.rows()) {
  Buffer<double> means(dout.tokens());
  for (Index token = 0; token < means.size(); ++token)
    means[token] = dot(call, dout, out, 0, 0, token);
  for (Index row = 0; row < call.rows(); ++row) {
    const Index token = call.query_order->rows[row];
    set_row(*this, Denominators::in_douts, row,
            token < 0 ? RowInput{minus_infinity, 0, 0}
                      : row_input(rows, first_row + token, means[token]));
  }
}

}  // namespace rapt::detail
