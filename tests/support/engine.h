#pragma once

#include <string>
#include <vector>

#include "rapt/attention.h"
#include "support/cases.h"

namespace rapt::test {

/// A context of every instruction set of this machine, best first, with two threads each; those
/// that differ in nothing but bf16 are left out.
const std::vector<Context>& every_isa();
/// Those that multiply bf16 operands as they are.
const std::vector<Context>& every_bf16_isa();

/// What the engine answers.
struct Answer {
  Attended forward;
  Gradients backward;
};
Answer run(View dout, View q, View k, View v, const Attention& how = {},
           const Context& context = every_isa().front());
Answer run(const Operands& operands, const Context& context = every_isa().front());

/// "<case> on <isa>": what a failure prints.
std::string where(const Case& c, const Context& context);

/// Operands that a test may write to: contiguous normal numbers.
struct Small {
  Small(const Shape& q, const Shape& kv, std::uint64_t seed = 1);
  Tensor q, k, v, dout;
  Attention how = {};

  Answer answer(const Context& context = every_isa().front()) const;
};

Tensor random_tensor(const Shape& shape, std::uint64_t seed);
float& at(Tensor& tensor, Index item, Index head, Index token, Index column);
/// One [tokens, dim] slice of a view as a [1, 1, tokens, dim] view.
View slice(View view, Index item, Index head);

}  // namespace rapt::test
