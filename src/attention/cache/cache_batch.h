#pragma once

#include <list>
#include <vector>

#include "attention/dispatch.h"

namespace rapt::detail {

/// Queries over sequences of a cache as requests, one for each sequence, validated.
class CacheBatch {
 public:
  CacheBatch(const AnyView& q, const KvCache& cache, std::span<const KvCache::Sequence> sequences,
             const Attention& how, const ForwardOutput& output);
  CacheBatch(const CacheBatch&) = delete;
  CacheBatch& operator=(const CacheBatch&) = delete;

  std::span<Job> jobs() { return jobs_; }

 private:
  std::list<Attention> narrowed_;  // none of them moves
  std::vector<Job> jobs_;
};

/// Validates and computes queries over sequences of a cache.
void dispatch_cache(const AnyView& q, const KvCache& cache,
                    std::span<const KvCache::Sequence> sequences, const Attention& how,
                    const ForwardOutput& output);

/// A cache grows: tokens that a pattern names and that are not there yet may come. The pattern of a
/// sequence of so many tokens, in `narrowed` if it is another one.
const Attention& attention_among(const Attention& how, Index tokens,
                                 std::list<Attention>& narrowed);

/// The request of q [batch, heads, queries, dim] over a sequence.
Request cache_request(const AnyView& q, const CachedSequence& sequence, Index tokens,
                      const Attention& how, const Context& context);

}  // namespace rapt::detail
