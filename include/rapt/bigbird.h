#pragma once

#include <cstdint>
#include <vector>

#include "rapt/attention.h"

namespace rapt {

/// BigBird's block-sparse attention. Tokens are cut into blocks; those of the first and the last
/// block see every key, those of any other see the first and the last block, their own, its two
/// neighbours and some random blocks. The last block may be shorter.
struct BigBird {
  /// Random blocks of each query block; lists left out at the end are empty, and so are those of
  /// the first and the last block in effect. A block that is seen anyway counts once.
  using RandomBlocks = std::vector<std::vector<Index>>;

  Index block = 64;
  std::vector<RandomBlocks> random = {};  // none, one for all heads, or one for each
  /// How often the keys of the first block count for the blocks between first and last. At
  /// inference Transformers has no random blocks and takes the first block instead: 1 + its
  /// num_random_blocks.
  Index first_block_counts = 1;
  /// Attention mask, [batch][tokens], or [tokens] for all items: 0 is padding, which sees nothing
  /// and is seen by none. Empty: none.
  std::vector<std::uint8_t> attention_mask = {};
  Scale scale = {};
  bool gradients = true;  // keep what exact gradients need of a 16-bit output: Rows::out
};

/// Who sees whom, as a pattern for so many tokens: without padding, and every key counting once.
RAPT_API Pattern bigbird(const BigBird& how, Index tokens, Index head = 0);

/// q, k, v [batch, heads, tokens, dim]. Transformers leaves block-sparse attention for sequences of
/// at most (5 + 2 * num_random_blocks) * block tokens; this does not.
RAPT_API Attended attend_bigbird(AnyView q, AnyView k, AnyView v, const BigBird& how,
                                 const Context& context = {});
/// `attended` comes from attend_bigbird with the same operands and the same `how`.
RAPT_API Gradients attend_bigbird_backward(AnyView dout, AnyView q, AnyView k, AnyView v,
                                           const AttendedView& attended, const BigBird& how,
                                           const Context& context = {});

}  // namespace rapt
