#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "rapt/attention.h"

// Truth is small, slow and double: attention and its gradients straight from the rule, one pair at
// a time.
namespace rapt::test {

using Doubles = std::vector<double>;

/// The operands of one call as doubles, row-major, whatever their strides were.
struct Problem {
  Index batch = 0, heads = 0, kv_heads = 0, queries = 0, keys = 0, dim = 0, value_dim = 0;
  Attention how;  // pattern, rules and shapes; the numbers of its parts are copied below
  Doubles q, k, v, slopes, kerple, table, relative_keys, relative_values, dense, sinks;
};
Problem problem(View q, View k, View v, const Attention& how = {});
/// The numbers of a view in row-major order.
Doubles doubles(View view);

/// Numbers of the definition and, for each, how large one unit of f32 error is:
/// u32 * (4 + S - log p) * (the size the sum could have had without cancellation), the -log p of
/// each term for itself; numerics.md 1.1 and 1.3 without it.
struct Truth {
  Doubles value, unit;
  double floor = 0;  // allowance for underflow, the same for every element
  // Of out and the gradients: the sizes of the terms of the sum and of their squares, what rounding
  // each probability and its gradient to bf16 may cost (numerics.md 1.2, 1.3).
  Doubles size = {}, square = {};
  // Of gradients: what rounding each probability and each gradient of a logit to bf16 may cost, in
  // u16. Smaller than `size` where a row attends to one key, because its terms cancel before they
  // are rounded.
  Doubles rounding = {};
  Doubles slack = {};  // what else each element may be off by; empty: nothing
};

/// Forward, [batch, heads, queries(, value_dim)].
struct Defined {
  Truth out, lse;
  Truth row_lse;  // the same numbers with the tighter unit that (max, sum) must keep
  Truth entropy, largest, logit_variance, reach, sink_mass;
  Truth jacobian_square;  // squared, because rounding is relative to the terms of the square
};
Defined define(const Problem& problem);

struct DefinedGradients {
  Truth dq, dk, dv, dslopes, dkerple, dtable, drelative_keys, drelative_values, ddense, dsinks;
};
/// Gradients of sum(dout * out); dout [batch, heads, queries, value_dim].
DefinedGradients define_gradients(const Problem& problem, const Doubles& dout);

/// What a probability is multiplied with: 0 if its pair is dropped, 1 / (1 - rate) if not.
double kept(const Dropout& dropout, Index item_head, Index query, Index key);
/// Philox4x32-10.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                    std::array<std::uint32_t, 2> key);

constexpr double u32 = 0x1p-24;
constexpr double u16 = 0x1p-8;

}  // namespace rapt::test
