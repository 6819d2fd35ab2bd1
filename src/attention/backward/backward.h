#pragma once

#include "attention/call.h"

namespace rapt {

/// What backward reads besides q, k, v, and what it derives from it once: per query row [batch,
/// heads, queries].
struct BackwardInput {
  BackwardInput(const Call& call, AnyView dout, AnyView out, const Rows& rows, View dlse = {});
  /// Of a call with one head whose queries have an order: dout and out [1, 1, tokens, value_dim]
  /// and rows from `first_row` on are those of the tokens.
  BackwardInput(const Call& call, AnyView dout, AnyView out, const Rows& rows, Index first_row);

  AnyView dout;
  Buffer<float> reference;     // what p is measured from, 0 for a row that sees nothing
  Buffer<double> inverse_sum;  // 1 / denominator, 0 for a row that sees nothing
  Buffer<float> delta;         // sum(dout * out) / denominator
  // Where pairs multiply, the denominator is in `reference` instead, and in neither of the others.
  std::vector<double> dsinks;  // per head, empty without sinks
};

/// dq, dk, dv and the gradients of slopes, table and relative keys.
void run_backward(const Call& call, const BackwardInput& input, const GradientViews& operands,
                  Gradients& gradients);
/// The gradient of a dense bias: another pass, because a broadcast bias sums over what the first
/// pass does apart.
void run_dense_gradient(const Call& call, const BackwardInput& input, Tensor& ddense);

}  // namespace rapt
