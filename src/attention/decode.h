#pragma once

#include "attention/cached_keys.h"
#include "attention/forward.h"

namespace rapt {

/// One batch item on its way over its cached sequence.
struct DecodeItem {
  const Call& call;
  const KvCache::Body::Tokens& tokens;
  ForwardOutput output;
};

/// Whether a few queries over a cache can take the short way: all query heads of a key head side by
/// side, keys split over threads. Parts of the score that are rare in decoding go the general way.
bool decodes(const Call& call);
/// In words which way a call over a cache goes, and why.
std::string way_over_cache(const Call& call);

/// Forward of items for which decodes() holds. Keys are split by their number alone and the parts
/// joined in order, so the bits do not depend on the threads.
void run_decode(const KvCache::Body& cache, std::span<const DecodeItem> items,
                const Context& context);

}  // namespace rapt
