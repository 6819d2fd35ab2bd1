#pragma once

#include <cstdint>
#include <vector>

#include "rapt/attention.h"

namespace rapt {

/// The class of a token in Longformer's attention; the values are those of its merged attention
/// mask.
enum class TokenClass : std::uint8_t { padding = 0, local = 1, global = 2 };
template <>
inline constexpr EnumNames enum_names<TokenClass>{"token class", "padding, local, global"};

/// Longformer's self-attention as it is defined: a local token sees all global tokens and the local
/// tokens inside its window. A global token sees every token except padding, through separate
/// projections. Padding sees nothing and is hidden. No length has to be a multiple of anything.
struct Longformer {
  Index window = 256;  // on each side: half of Transformers' attention_window
  /// Keys `dilation` apart instead of neighbours: one for all heads, or one for each.
  std::vector<Index> dilation = {1};
  bool causal = false;  // only keys at or before the query, global ones included
  Scale scale = {};
  Dropout dropout = {};
  /// [batch][tokens], or [tokens] for all items; empty: all local.
  std::vector<TokenClass> classes = {};
  bool gradients = true;  // keep what exact gradients need of a 16-bit output: Rows::out
};

/// q, k, v and, where there are global tokens, the other projections, all [batch, heads, tokens,
/// dim].
struct LongformerOperands {
  AnyView q, k, v;
  AnyView q_global = {}, k_global = {}, v_global = {};
};

struct LongformerGradients {
  Tensor dq, dk, dv;
  Tensor dq_global, dk_global, dv_global;  // empty without global operands
};

/// Attended::out is [batch, heads, tokens, dim], zeros for padding; there is no lse. Throws
/// std::invalid_argument if shapes disagree, or a global token has no global operands.
RAPT_API Attended attend_longformer(const LongformerOperands& operands, const Longformer& how,
                                    const Context& context = {});
RAPT_API LongformerGradients attend_longformer_backward(AnyView dout,
                                                        const LongformerOperands& operands,
                                                        const AttendedView& attended,
                                                        const Longformer& how,
                                                        const Context& context = {});

/// Where gradients are written: the shapes and types of the operands, any strides. The global ones
/// may stay empty if no token is global.
struct LongformerGradientViews {
  AnyMutableView dq, dk, dv;
  AnyMutableView dq_global = {}, dk_global = {}, dv_global = {};
};

/// The same two, writing into memory of the caller, which must not overlap anything else of the
/// call. `Attended::out` stays empty.
RAPT_API Attended attend_longformer_into(AnyMutableView out, const LongformerOperands& operands,
                                         const Longformer& how, const Context& context = {});
RAPT_API void attend_longformer_backward_into(const LongformerGradientViews& to, AnyView dout,
                                              const LongformerOperands& operands,
                                              const AttendedView& attended, const Longformer& how,
                                              const Context& context = {});

}  // namespace rapt
