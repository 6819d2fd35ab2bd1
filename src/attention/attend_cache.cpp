#include <algorithm>
#include <deque>
#include <memory_resource>

#include "attention/cached_keys.h"
#include "attention/decode.h"
#include "attention/lsh_decode.h"
#include "attention/pattern_node.h"
#include "attention/stats.h"
#include "base/check.h"
#include "base/fpmode.h"
#include "rapt/cache.h"

namespace rapt {
namespace {

constexpr const char* where = "attend over a cache";

/// One item of a [batch, heads, tokens, dim] view.
template <class V>
BasicAnyView<V> item_of(const BasicAnyView<V>& view, Index item) {
  Shape shape = view.shape();
  shape[0] = 1;
  return BasicAnyView<V>::trusted(view.row(item, 0, 0), view.type(), shape, view.strides());
}

/// The operands of one item: its queries, and stand-ins for what lies in the cache.
const Call& emplace_call(std::pmr::deque<Call>& calls, const AnyView& q, const KvCache::Body& cache,
                         Index tokens, const Attention& how, const Context& context) {
  const PageLayout& layout = cache.layout;
  const Index heads = cache.options.kv_heads;
  const Type type = cache.options.type == CacheType::bf16 ? Type::bf16 : Type::f32;
  return calls.emplace_back(where, q, stand_in({1, heads, tokens, layout.dim}, type),
                            stand_in({1, heads, tokens, layout.value_dim}, type), how, context);
}

void check_fits(const AnyView& q, const KvCache& cache,
                std::span<const KvCache::Sequence> sequences, const Context& context) {
  check(q.shape().rank() == 4, where, ": q has shape ", q.shape(),
        ", expected [batch, heads, tokens, dim]");
  check(q.batch() == static_cast<Index>(sequences.size()), where, ": q has batch ", q.batch(),
        " but ", sequences.size(), " sequences are given, expected one for each item");
  check(&kernels_of(context) == &cache.body().kernels, where, ": the cache was laid out for ",
        cache.context().isa(), " but the context has ", context.isa(),
        ", expected the same instruction set");
}

}  // namespace

Attended attend(AnyView q, const KvCache& cache, std::span<const KvCache::Sequence> sequences,
                const Attention& how, const Context& context) {
  const FlushDenormals guard;
  check_fits(q, cache, sequences, context);
  const KvCache::Body& body = cache.body();
  if (how.pattern.node()->has_lsh()) return attend_lsh_cache(q, body, sequences, how, context);
  check(body.hash == nullptr, where,
        ": the cache was made for an lsh leaf but the pattern has none, expected that of "
        "CacheOptions::lsh");
  const Index rows = q.heads() * q.tokens();
  const auto all_rows = static_cast<std::size_t>(q.batch() * rows);
  Attended attended;
  attended.out =
      Tensor::uninitialized({q.batch(), q.heads(), q.tokens(), body.layout.value_dim}, q.type());
  attended.lse = Tensor({q.batch(), q.heads(), q.tokens()});
  attended.rows.max.resize(all_rows);
  attended.rows.sum.resize(all_rows);
  if (how.stats) attended.stats = make_stats(attended.lse.shape());
  // Every item is checked before any is computed.
  std::byte room[2048];  // enough for an item or two
  std::pmr::monotonic_buffer_resource memory(room, sizeof room);
  std::pmr::deque<Call> calls(&memory);
  std::pmr::vector<CachedThinKeys> keys(&memory);
  std::pmr::vector<DecodeItem> items(&memory);
  keys.reserve(sequences.size());
  items.reserve(sequences.size());
  for (Index item = 0; item < q.batch(); ++item) {
    const KvCache::Body::Tokens& tokens =
        body.tokens_of(sequences[static_cast<std::size_t>(item)], where);
    const Call& call = emplace_call(calls, item_of(q, item), body, tokens.count, how, context);
    CachedKeys(call, body, tokens).check_visits(where, *call.plan);
    items.push_back({call,
                     0,
                     keys.emplace_back(body, tokens),
                     {item_of(AnyMutableView(attended.out), item), &attended.lse, &attended.rows,
                      attended.stats ? &*attended.stats : nullptr, item * rows}});
  }
  if (std::all_of(calls.begin(), calls.end(), decodes)) {
    run_decode(items, context);
    return attended;
  }
  for (Index item = 0; item < q.batch(); ++item) {
    const DecodeItem& each = items[static_cast<std::size_t>(item)];
    CachedKeys tiles(each.call, body,
                     body.tokens_of(sequences[static_cast<std::size_t>(item)], where));
    run_forward(each.call, tiles, each.output);
  }
  return attended;
}

}  // namespace rapt
