#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rapt/context.h"
#include "rapt/pattern.h"
#include "rapt/plan.h"
#include "rapt/tensor.h"

namespace rapt {

/// What multiplies q·k.
struct RAPT_API Scale {
  enum class Rule { inverse_sqrt_dim, inverse_dim, value, log_n };
  Rule rule = Rule::inverse_sqrt_dim;
  double number = 0;

  static Scale inverse_sqrt_dim() { return {}; }
  static Scale inverse_dim() { return {Rule::inverse_dim, 0}; }
  static Scale none() { return {Rule::value, 1}; }
  static Scale value(double factor) { return {Rule::value, factor}; }
  /// Entropy-invariant: log_base(n) / sqrt(dim), n being the number of keys this query sees.
  /// Keys that only a dense bias of -inf hides are counted.
  static Scale log_n(double base = 512) { return {Rule::log_n, base}; }
};
template <>
inline constexpr EnumNames enum_names<Scale::Rule>{"scale",
                                                   "inverse_sqrt_dim, inverse_dim, value, log_n"};

/// bias = -slope[head] * |query position - key position|
struct Alibi {
  std::vector<float> slopes;  // one per query head
};

/// KERPLE: bias = -amplitude * ln(1 + rate * distance), or -amplitude * distance^rate with rate at
/// most 2. Trained ones are kept at 0.01 or more after every step.
struct Kerple {
  enum class Kind { logarithmic, power };
  Kind kind = Kind::logarithmic;
  std::vector<float> amplitudes, rates;  // one of each per query head
};
template <>
inline constexpr EnumNames enum_names<Kerple::Kind>{"kind of KERPLE", "logarithmic, power"};

/// bias = values[bucket(key position - query position), head], T5's buckets.
struct RelativeTable {
  enum class Direction { both, past };
  View values;  // [buckets, heads]
  Index max_distance = 128;
  Direction direction = Direction::both;
};
template <>
inline constexpr EnumNames enum_names<RelativeTable::Direction>{"direction", "both, past"};

/// Shaw: the key of a pair is k_j + table[clip(j - i, -reach, reach) + reach]; inside the scale.
struct RelativeKeys {
  View table;  // [2 * reach + 1, dim], shared by all heads
};

/// Numbers added to the logits, [batch, heads, queries, keys]; an axis of size 1 is repeated. -inf
/// hides a pair.
struct DenseBias {
  View values;
  bool fixed = false;  // no gradient is computed; saves a pass
};

/// What is added to a pair's score; parts are joined with +. It borrows its tables.
struct RAPT_API Bias {
  std::optional<Alibi> alibi;
  std::optional<Kerple> kerple;
  std::optional<RelativeTable> table;
  std::optional<RelativeKeys> keys;
  std::optional<DenseBias> dense;

  /// Throws std::invalid_argument if both sides carry the same kind of part.
  friend RAPT_API Bias operator+(Bias a, Bias b);
};

/// The published slopes for any number of heads.
RAPT_API Bias alibi(Index heads);
RAPT_API Bias alibi(std::vector<float> slopes);
RAPT_API Bias kerple_log(std::vector<float> amplitudes, std::vector<float> rates);
RAPT_API Bias kerple_power(std::vector<float> amplitudes, std::vector<float> rates);
RAPT_API Bias t5_bias(View values, Index max_distance = 128,
                      RelativeTable::Direction direction = RelativeTable::Direction::both);
RAPT_API Bias relative_keys(View table);
RAPT_API Bias dense_bias(View values);
// A bias borrows its tables: a temporary would be gone before they are read.
Bias t5_bias(Tensor&& values, Index max_distance = 128,
             RelativeTable::Direction direction = RelativeTable::Direction::both) = delete;
Bias relative_keys(Tensor&& table) = delete;
Bias dense_bias(Tensor&& values) = delete;
/// T5's bucket of a relative position (key minus query).
RAPT_API Index t5_bucket(Index relative, Index buckets, Index max_distance,
                         RelativeTable::Direction direction);

/// Each probability is dropped with probability `rate`, kept ones grow by 1 / (1 - rate).
/// The decision is a function of (seed, batch item, head, number of heads, query, key) alone.
struct Dropout {
  double rate = 0;
  std::uint64_t seed = 0;
};

class LshOrder;

/// All there is to say about one attention call.
///
/// logit = softcap(scale * q·(k + relative key)) + bias; probabilities = softmax over the visible
/// keys and the sink, if any.
struct Attention {
  Pattern pattern = full();
  Scale scale = {};
  std::optional<double> softcap = {};  // c: c * tanh(logit / c), before the bias
  Bias bias = {};
  View relative_values = {};  // Shaw: [2 * reach + 1, value_dim], shared by all heads; the value of
                              // a pair is v_j + its row clip(j - i, -reach, reach) + reach
  /// For lsh(...): rotations [heads, dim, rounds, half the sum of the bucket factors] instead of
  /// those of its seed.
  std::optional<View> rotations = {};
  /// For lsh(...): the order that an earlier call with these shapes left in Rows::order. Nothing is
  /// hashed then, so a layer that is recomputed from rounded inputs sees the same keys.
  std::shared_ptr<const LshOrder> order = nullptr;
  std::vector<float> sinks =
      {};  // one logit per query head that takes probability and gives no value
  Dropout dropout = {};
  std::shared_ptr<const Plan> plan =
      nullptr;            // a plan of `pattern` to share between calls; built if absent
  bool stats = false;     // also measure what attention did
  bool strict = false;    // a token has the same bits however its prompt was cut
  bool gradients = true;  // keep what exact gradients need of a 16-bit output: Rows::out
};

/// Row statistics: the softmax denominator of query row r is sum[r] * 2^max[r]. [batch, heads,
/// queries], row-major. The exponent is binary because the kernels work in it: kept apart and
/// unrounded, the pair lets backward repeat the probabilities of forward exactly.
struct Rows {
  std::vector<float> max;  // -inf for a row that sees nothing
  std::vector<double> sum;
  std::shared_ptr<const LshOrder> order = nullptr;  // of lsh(...): how the tokens were sorted
  /// A 16-bit output before it was rounded, f32 [batch, heads, queries, value_dim]; null for an f32
  /// output. Without it, gradients of rows that attend to one key are as rough as the output.
  std::shared_ptr<const Tensor> out = nullptr;
};

/// What attention did, per query row [batch, heads, queries]; a row that sees nothing has zeros.
struct Stats {
  Tensor entropy;         // of the probabilities, in nats; the sink counts as one outcome
  Tensor largest;         // largest probability of a key
  Tensor logit_variance;  // over the visible keys, with equal weights
  Tensor jacobian_norm;   // Frobenius norm of d probabilities / d logits: 0 when saturated or
                          // uniform over many keys
  Tensor reach;           // mean distance |query position - key position| under the probabilities
  Tensor sink_mass;       // probability of the learned sink, or of key 0 if there is none
};

/// What every kind of attention returns.
struct Attended {
  Tensor out;  // [batch, heads, queries, value_dim], of q's type
  Tensor lse;  // [batch, heads, queries], natural logarithm of the denominator; attend() only
  Rows rows;   // what the backward pass needs
  Rows global_rows = {};  // the same of Longformer's global tokens: of each item [heads, globals]
  std::optional<Stats> stats = {};
};

/// What backward reads of an `Attended`, which converts implicitly. Construct it explicitly for an
/// output in the caller's memory: {out, y.rows}. It borrows all three.
struct AttendedView {
  AttendedView(const Attended& y) : out(y.out), rows(y.rows), global_rows(y.global_rows) {}
  AttendedView(AnyView out_, const Rows& rows_) : AttendedView(out_, rows_, rows_) {}
  AttendedView(AnyView out_, const Rows& rows_, const Rows& global_rows_)
      : out(out_), rows(rows_), global_rows(global_rows_) {}

  AnyView out;
  const Rows& rows;
  const Rows& global_rows;
};

/// Gradients of what attention returned; a tensor or view alone is that of the output.
struct OutputGradients {
  template <class T>
  requires std::convertible_to<T, AnyView> OutputGradients(T&& dout_)
      : dout(std::forward<T>(dout_)) {}
  OutputGradients(AnyView dout_, View dlse_) : dout(dout_), dlse(dlse_) {}

  AnyView dout;
  View dlse = {};  // [batch, heads, queries]; empty: the loss does not depend on lse
};

/// Gradients; a part that the call did not have is empty.
struct Gradients {
  Tensor dq, dk, dv;        // of the types of q, k and v
  Tensor dslopes;           // [heads]
  Tensor dkerple;           // [2, heads]: of the amplitudes, of the rates
  Tensor dtable;            // [buckets, heads]
  Tensor drelative_keys;    // [2 * reach + 1, dim]
  Tensor drelative_values;  // [2 * reach + 1, value_dim]
  Tensor ddense;            // shape of the dense bias
  Tensor dsinks;            // [heads]
};

/// Softmax attention of each query over the keys its pattern lets it see.
///
/// q [batch, heads, queries, dim]; k [batch, kv_heads, keys, dim]; v [batch, kv_heads, keys,
/// value_dim]; kv_heads divides heads. Queries are the newest positions: query i is at position
/// keys - queries + i. Training, prefill and one-token decode are this same call. A query that sees
/// no key gives zeros and lse = -inf. Throws std::invalid_argument if shapes or options disagree.
///
/// Operands are f32, bf16 or f16, each for itself. Sums and probabilities are f32 or better
/// whatever their types; only the result is rounded to its type.
RAPT_API Attended attend(AnyView q, AnyView k, AnyView v, const Attention& how = {},
                         const Context& context = {});

/// The same, writing the output into memory of the caller, which must not overlap q, k, v or a
/// dense bias. `Attended::out` stays empty.
RAPT_API Attended attend_into(AnyMutableView out, AnyView q, AnyView k, AnyView v,
                              const Attention& how = {}, const Context& context = {});

/// Gradients of sum(dout * out) + sum(dlse * lse) with respect to q, k, v and every learnable part
/// of the score.
///
/// `attended` comes from attend with the same operands and the same `how`. An output of 16 bits is
/// read only if the rows keep no f32 one.
RAPT_API Gradients attend_backward(const OutputGradients& gradients, AnyView q, AnyView k,
                                   AnyView v, const AttendedView& attended,
                                   const Attention& how = {}, const Context& context = {});

/// Where gradients of the operands are written: the shapes and types of q, k and v, any strides.
struct GradientViews {
  AnyMutableView dq, dk, dv;
};

/// The same, writing dq, dk and dv into memory of the caller, which must not overlap anything else
/// of the call. `Gradients::dq`, dk and dv stay empty.
RAPT_API Gradients attend_backward_into(const GradientViews& to, const OutputGradients& gradients,
                                        AnyView q, AnyView k, AnyView v,
                                        const AttendedView& attended, const Attention& how = {},
                                        const Context& context = {});

/// Which route, kernel, instruction set, tiles and threads a call with these shapes would use, in
/// words.
RAPT_API std::string explain(const Shape& q, const Shape& k, const Shape& v,
                             const Attention& how = {}, Type type = Type::f32,
                             const Context& context = {});

}  // namespace rapt
