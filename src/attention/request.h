#pragma once

#include "attention/cache/kv_cache_impl.h"
#include "attention/pattern/ranges.h"

namespace rapt::detail {

/// The sequence of a cache that a request reads keys and values from.
struct CachedSequence {
  const CacheOptions& options;
  const KvCache::Impl* cache = nullptr;           // null: `explain` was given options only
  const KvCache::Impl::Tokens* tokens = nullptr;  // likewise
  std::optional<KvCache::Sequence> number = {};
};

/// The keys of one query that sees few of them, and scores them by a product alone.
struct ShortContext {
  Range range;    // 1 to 64 keys; over a cache, of its last page, which is not full
  double factor;  // of q · k, in units of log2
};

/// One attention call before anything is planned: what dispatch chooses a route for. Over a cache
/// it is about one sequence, and k and v are shapes without memory.
struct Request {
  const char* where;  // opens the messages
  AnyView q, k, v;
  const Attention& how;
  const Context& context;
  std::optional<CachedSequence> cached = {};
  std::optional<ShortContext> short_context = {};  // kept by the route that needs it

  Index queries() const { return q.tokens(); }
  Index keys() const { return k.tokens(); }
  /// Query rows that share a key head.
  Index rows_per_kv_head() const { return q.heads() == 0 ? 0 : q.heads() / k.heads() * q.tokens(); }
};

/// A view with a shape and a type but without elements, for calls that only describe.
AnyView stand_in(const Shape& shape, Type type = Type::f32);

}  // namespace rapt::detail
