#pragma once

#include <span>

#include "attention/cache_pages.h"
#include "attention/forward.h"

namespace rapt {

/// Queries of a head that one task looks up. No more of them are ever treated as a prompt.
inline constexpr Index lsh_query_block = 16;

/// attend over a hashed cache: for each query its neighbours are looked up in the order that the
/// cache keeps, so the cost of a token does not depend on how many were cached before it.
void attend_lsh_cache(const AnyView& q, const KvCache::Body& cache,
                      std::span<const KvCache::Sequence> sequences, const Attention& how,
                      const Context& context, const ForwardOutput& output);

/// Refuses what it would refuse, and reads no numbers.
void check_lsh_cache(const AnyView& q, const KvCache::Body& cache,
                     std::span<const KvCache::Sequence> sequences, const Attention& how,
                     const Context& context);

}  // namespace rapt
