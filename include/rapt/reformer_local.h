#pragma once

#include <cstdint>
#include <vector>

#include "rapt/attention.h"

namespace rapt {

/// Reformer's local attention as Transformers computes it: tokens are cut into chunks in a ring,
/// and a query sees its own chunk and its neighbours. In a ring shorter than the neighbourhood, a
/// chunk counts once per appearance: with two chunks and one neighbour on each side, the other
/// chunk counts twice. In the pattern chunks(...) every key counts once.
struct ReformerLocal {
  /// What a query gets that sees no key, because all in its neighbourhood are padding.
  enum class EmptyRows {
    zeros,  // rapt's rule everywhere
    sum,    // the result of Transformers: the sum of the neighbourhood's values, hidden or not
  };

  Index chunk = 64;  // shorter inputs are one chunk
  Index before = 1, after = 0;
  bool causal = false;
  /// Transformers' attention mask, [batch][tokens], or [tokens] for all items: 0 is padding, which
  /// no query sees. Empty: none.
  std::vector<std::uint8_t> attention_mask = {};
  EmptyRows empty_rows = EmptyRows::zeros;
  Dropout dropout = {};
  bool gradients = true;  // keep what exact gradients need of a 16-bit output: Rows::out
};
template <>
inline constexpr EnumNames enum_names<ReformerLocal::EmptyRows>{"empty_rows", "zeros, sum"};

/// q, k [batch, heads, tokens, dim]; v [batch, heads, tokens, value_dim]. Any number of tokens.
/// Throws std::invalid_argument if shapes or options disagree.
RAPT_API Attended attend_reformer_local(AnyView q, AnyView k, AnyView v, const ReformerLocal& how,
                                        const Context& context = {});
/// `attended` comes from attend_reformer_local with the same operands and the same `how`.
RAPT_API Gradients attend_reformer_local_backward(AnyView dout, AnyView q, AnyView k, AnyView v,
                                                  const AttendedView& attended,
                                                  const ReformerLocal& how,
                                                  const Context& context = {});

}  // namespace rapt
