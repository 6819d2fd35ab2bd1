#pragma once

#include <string>
#include <vector>

#include "rapt/attention.h"

namespace rapt::lab {
using namespace detail;

/// Queries and keys of a made-up head whose habit is known.
struct HeadKind {
  std::string name;
  Tensor q, k;  // [1, 1, tokens, dim]
};

/// A head that looks near by, one that looks for tokens of its own kind, one that rests on the
/// first tokens, and one that looks at nothing in particular.
std::vector<HeadKind> head_kinds(Index tokens, Index dim, std::uint64_t seed);

/// Per query, which part of the probability under `wide` is also within `narrow`, by the two sums
/// of softmax. Mean over the queries.
double mass_within(const HeadKind& head, const Pattern& wide, const Pattern& narrow,
                   const Context& context);

/// Mean over some queries of the probability of their k largest keys under causal attention, for
/// each of `counts`.
std::vector<double> mass_of_largest(const HeadKind& head, const std::vector<Index>& counts,
                                    const Context& context);

}  // namespace rapt::lab
