#pragma once

#include <memory>
#include <optional>
#include <span>

#include "rapt/attention.h"
#include "rapt/cache_type.h"
#include "rapt/lsh.h"

namespace rapt {

/// For attention with an lsh leaf: tokens are hashed when they are appended.
struct CacheLsh {
  /// The leaf that patterns over this cache have, with shared keys and at most 65,535 buckets.
  Lsh lsh = {};
  /// The length that buckets are chosen for where the leaf names none. It is no limit.
  std::optional<Index> tokens = {};
  /// [heads, dim, rounds, half the sum of the bucket factors] instead of those of the leaf's seed;
  /// copied, and gone from KvCache::options().
  std::optional<View> rotations = {};
};

struct CacheOptions {
  Index kv_heads = 1;
  Index dim = 64;
  std::optional<Index> value_dim = {};  // as dim if absent
  CacheType type = CacheType::f32;
  /// Absent: keep all. Otherwise each of the tokens appended last sees itself, the window - 1
  /// tokens before it and the first `pinned` ones; whole pages that none of them needs are
  /// released.
  std::optional<Index> window = {};
  Index pinned = 0;
  /// Set: the cache serves patterns with this lsh leaf and no others, and keeps all tokens.
  std::optional<CacheLsh> lsh = {};

  Index filled_value_dim() const { return value_dim.value_or(dim); }
};

/// Keys and values of growing sequences, stored in the layout the kernels read.
///
/// Memory comes in pages of 64 tokens. A fork shares the pages of its origin; a shared page is
/// copied before one of its sequences writes to it. Positions never change; tokens dropped by the
/// window leave a gap.
///
/// One cache may be read by many threads at a time, but not while it changes.
class RAPT_API KvCache {
 public:
  /// A sequence is a number that stays valid until it is removed.
  using Sequence = Index;

  /// Throws std::invalid_argument if an option makes no sense. Pages have the layout of the
  /// context's instruction set, and attention over the cache runs in this context.
  explicit KvCache(const CacheOptions& options, const Context& context = {});
  ~KvCache();
  KvCache(KvCache&&) noexcept;
  KvCache& operator=(KvCache&&) noexcept;

  Sequence add();
  /// A new sequence with the tokens of another; copies only the page table.
  Sequence fork(Sequence sequence);
  void remove(Sequence sequence);

  /// Adds tokens: k [1, kv_heads, tokens, dim], v [1, kv_heads, tokens, value_dim]. Nothing changes
  /// if it throws.
  void append(Sequence sequence, AnyView k, AnyView v);
  /// Adds positions without a token, which no query sees: the left padding of a prompt. Only for
  /// hashed caches; they sort such positions to the end.
  void append_padding(Sequence sequence, Index tokens);
  /// Forgets all but the first tokens. Throws std::invalid_argument if the window has already
  /// released tokens that would be newest.
  void truncate(Sequence sequence, Index tokens);

  /// Tokens appended so far, including those that the window released.
  Index tokens(Sequence sequence) const;
  const CacheOptions& options() const;
  const Context& context() const;
  /// Pages in use, shared ones counted once, and the memory they take, without what hashed caches
  /// know about the order of their tokens.
  Index pages() const;
  Index bytes() const;

  struct Impl;

 private:
  friend struct detail::Access;
  std::unique_ptr<Impl> impl_;
};

/// Attention of q [batch, heads, queries, dim] over a cache, in the cache's context: item i sees
/// sequence sequences[i], whose newest tokens the queries are. Throws std::invalid_argument if a
/// pattern needs tokens that the window has released, and if there are more queries than tokens and
/// the first of them would precede all keys: its tokens have not been appended.
///
/// A prompt in one call, in chunks or token by token gives the same answer within the bound, and
/// bit for bit with how.strict, which disables the faster routes for few queries.
///
/// Not so with an lsh leaf, which must be that of the cache: a query then sees what it would see in
/// a call without cache over all tokens of its sequence up to now, and later tokens move the
/// borders of chunks. q are again the newest keys. Padding is what append_padding adds, not a key
/// that the rest of the pattern hides from all.
RAPT_API Attended attend(AnyView q, const KvCache& cache,
                         std::span<const KvCache::Sequence> sequences, const Attention& how = {});

/// The same for the output alone, written into the caller's memory, which must not overlap q or a
/// dense bias: no lse, rows or statistics are kept, and a call of one sequence over few keys
/// allocates nothing.
RAPT_API void attend_into(AnyMutableView out, AnyView q, const KvCache& cache,
                          std::span<const KvCache::Sequence> sequences, const Attention& how = {});

/// The route that attend takes over sequences of a cache, with queries [batch, heads, queries, dim]
/// of a type, in words. Throws std::invalid_argument as attend would.
RAPT_API std::string explain(const Shape& q, const KvCache& cache,
                             std::span<const KvCache::Sequence> sequences,
                             const Attention& how = {}, Type type = Type::f32);
/// The same for a cache with these options and sequences of `tokens` tokens each. What its window
/// has released is not known.
RAPT_API std::string explain(const Shape& q, const CacheOptions& cache, Index tokens,
                             const Attention& how = {}, Type type = Type::f32,
                             const Context& context = {});

}  // namespace rapt
