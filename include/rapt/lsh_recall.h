#pragma once

#include "rapt/attention.h"
#include "rapt/lsh.h"

namespace rapt {

struct LshRecallOptions {
  Index top = 16;                      // keys of a query that count as its true neighbours
  std::optional<Index> queries = 256;  // of each item and head, evenly spaced; none: all
};

/// How much of attention over all keys a hashed one finds, averaged over the queries that see a
/// key.
struct LshRecall {
  double top = 0;     // share of the `top` keys with the largest logits that a query sees
  double mass = 0;    // share of the softmax over all keys on the keys it sees
  double keys = 0;    // share of all its keys that it sees: what a random choice would find
  Index queries = 0;  // that the averages are over
};

/// Measures a pattern with an lsh leaf on your q and k, [batch, heads, tokens, dim], against the
/// same pattern without the leaf. With shared keys (pass the same vectors twice) a token does not
/// count as its own neighbour. Takes time queries * tokens * dim for each item and head.
RAPT_API LshRecall lsh_recall(AnyView q, AnyView k, const Attention& how,
                              const LshRecallOptions& options = {}, const Context& context = {});

}  // namespace rapt
