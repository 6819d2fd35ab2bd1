#pragma once

#include <memory>
#include <span>

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
  /// Room for so many rows, which the caller fills.
  BackwardInput(const AnyView& dout, Index rows);
  /// Of a call with one head whose queries have an order: dout and out [1, 1, tokens, value_dim]
  /// and rows from `first_row` on are those of the tokens. Denominators are in the output
  /// gradients.
  BackwardInput(const Call& call, AnyView dout, AnyView out, const Rows& rows, Index first_row);

  Operand dout;
  Buffer<float> running_max;   // what p is relative to, 0 for a row that sees nothing
  Buffer<double> inverse_sum;  // 1 / denominator, 0 for a row that sees nothing
  Buffer<float> delta;         // sum(dout * out) / denominator
  // With the denominator in the running max, neither of the last two has it.
  IndexedVector<double> dsinks;  // per head, empty without sinks
  Buffer<double> sink_parts;     // what each row gives to them
};

/// Sums of the gradients of tables of the score, [heads] and so on; empty where there is no table.
struct ScoreSums {
  IndexedVector<double> slopes;
  IndexedVector<double> kerple;  // [2][heads]
  IndexedVector<double> table;   // [buckets][heads]
};

class RelativeSums;
struct ScoreGradients;

/// Backward over ranges of heads of a call. Sums of the score's tables are over all ranges so far.
class BackwardPass {
 public:
  virtual ~BackwardPass() = default;

  /// Of the heads to be computed: dq, dk and dv, but nothing for queries that see no key.
  virtual void run(const BackwardInput& input, const GradientViews& operands) = 0;
  /// [batch * kv_heads][key groups]
  virtual std::span<const ScoreGradients> score_gradients() const = 0;
  virtual RelativeSums& relative_keys() = 0;
  virtual RelativeSums& relative_values() = 0;
  /// Tiles in a key group of the whole call.
  virtual Index group_tiles() const = 0;
};

template <class T>
std::unique_ptr<BackwardPass> make_backward_pass(const Call& call);

/// All gradients of a call, products multiplying numbers of type T.
template <class T>
void run_backward(const BackwardTask& task, const GradientViews& to, Gradients& gradients);

void write(const ScoreSums& sums, Gradients& gradients);

/// Zeros for queries that see nothing, which have no task that writes their gradient.
void clear_unseeing(const Call& call, const AnyMutableView& dq);

/// dq, dk, dv and the gradients of slopes, table and relative keys.
template <class T>
void run_backward_tiles(const Call& call, const BackwardInput& input, const GradientViews& operands,
                        Gradients& gradients);
/// The gradient of a dense bias: another pass, because a broadcast bias sums over what the first
/// pass computes separately.
void run_dense_gradient(const Call& call, const BackwardInput& input, Tensor& ddense);

}  // namespace rapt::detail
