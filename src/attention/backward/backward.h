#pragma once

#include "attention/call.h"
#include "base/indexed_vector.h"

namespace rapt::detail {

/// A checked call and what forward and the caller give to its backward pass.
struct BackwardTask {
  const Call& call;
  AnyView dout, out;
  const Rows& rows;
  View dlse;
};

/// Where backward divides by the softmax denominators: f32 output gradients are divided as they are
/// packed; bf16 ones stay as they are, and the running max takes the denominator in.
enum class Denominators { in_douts, in_running_max };

/// What backward reads besides q, k, v, and what it derives from it once: per query row [batch,
/// heads, queries].
struct BackwardInput {
  BackwardInput(const BackwardTask& task, Denominators denominators);
  /// Of a call with one head whose queries have an order: dout and out [1, 1, tokens, value_dim]
  /// and rows from `first_row` on are those of the tokens. Denominators are in the output
  /// gradients.
  BackwardInput(const Call& call, AnyView dout, AnyView out, const Rows& rows, Index first_row);

  AnyView dout;
  Buffer<float> running_max;   // what p is relative to, 0 for a row that sees nothing
  Buffer<double> inverse_sum;  // 1 / denominator, 0 for a row that sees nothing
  Buffer<float> delta;         // sum(dout * out) / denominator
  // With the denominator in the running max, neither of the last two has it.
  IndexedVector<double> dsinks;  // per head, empty without sinks
};

/// All gradients of a call, products multiplying numbers of type T.
template <class T>
void run_backward(const BackwardTask& task, const GradientViews& to, Gradients& gradients);

/// dq, dk, dv and the gradients of slopes, table and relative keys.
template <class T>
void run_backward_tiles(const Call& call, const BackwardInput& input, const GradientViews& operands,
                        Gradients& gradients);
/// The gradient of a dense bias: another pass, because a broadcast bias sums over what the first
/// pass computes separately.
void run_dense_gradient(const Call& call, const BackwardInput& input, Tensor& ddense);

}  // namespace rapt::detail
