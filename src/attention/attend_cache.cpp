#include <algorithm>
#include <deque>
#include <list>
#include <memory_resource>

#include "attention/cached_keys.h"
#include "attention/decode.h"
#include "attention/direct.h"
#include "attention/lsh_decode.h"
#include "attention/pattern_node.h"
#include "attention/standing.h"
#include "attention/stats.h"
#include "base/check.h"
#include "base/fpmode.h"
#include "base/views.h"
#include "rapt/cache.h"

namespace rapt {
namespace {

constexpr const char* where = over_cache;

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
  check_readable(where, "q", q);
  check(q.batch() == static_cast<Index>(sequences.size()), where, ": q has batch ", q.batch(),
        " but ", sequences.size(), " sequences are given, expected one for each item");
  check(&kernels_of(context) == &cache.body().kernels, where, ": the cache was laid out for ",
        cache.context().isa(), " but the context has ", context.isa(),
        ", expected the same instruction set");
}

using Sequences = std::span<const KvCache::Sequence>;

/// A call over a cache whose pattern has no lsh leaf.
class CacheCall {
 public:
  CacheCall(const AnyView& q, const KvCache& cache, Sequences sequences, const Attention& how,
            const Context& context)
      : q_(q), body_(cache.body()), sequences_(sequences), how_(how), context_(context) {
    check_unhashed(body_.hash != nullptr);
  }

  void run(const ForwardOutput& output) {
    const bool may = may_go_directly(q_, how_) && q_.dim() == body_.layout.dim &&
                     q_.heads() % body_.options.kv_heads == 0;
    if (!may || q_.batch() != 1) return run_batch(output, may);
    DirectItem item;
    if (!goes_directly(0, output.out, item)) return run_batch(output, false);
    run_direct({&item, 1}, output, context_);
  }

  /// Refuses what run would refuse, and computes nothing.
  void check_items() {
    for (Index item = 0; item < q_.batch(); ++item) {
      const KvCache::Body::Tokens& tokens = tokens_of(item);
      std::pmr::deque<Call> calls;
      const Call& call =
          emplace_call(calls, item_of(q_, item), body_, tokens.count, how_for(tokens), context_);
      CachedKeys(call, body_, tokens).check_visits(where, *call.plan);
    }
  }

 private:
  Index rows() const { return q_.heads() * q_.tokens(); }
  const KvCache::Body::Tokens& tokens_of(Index item) const {
    const KvCache::Sequence sequence = sequences_[static_cast<std::size_t>(item)];
    const KvCache::Body::Tokens& tokens = body_.tokens_of(sequence, where);
    if (q_.tokens() > tokens.count)
      check_standing(how_.pattern, {q_.tokens(), tokens.count}, sequence);
    return tokens;
  }
  /// Every item is checked before any is computed. Each takes the way that its own length says: it
  /// has the same bits in any company.
  void run_batch(const ForwardOutput& output, bool may_directly) {
    std::vector<DirectItem> direct;
    std::vector<Index> others;
    for (Index item = 0; item < q_.batch(); ++item) {
      DirectItem& last = direct.emplace_back();
      if (may_directly && goes_directly(item, output.out, last)) continue;
      direct.pop_back();
      others.push_back(item);
    }
    if (!others.empty()) run_others(others, output);
    if (!direct.empty()) run_direct(direct, output, context_);
  }

  /// Whether all keys in sight are few and lie in one open page; then sets the item.
  bool goes_directly(Index item, const AnyMutableView& out, DirectItem& to) const {
    const KvCache::Body::Tokens& tokens = tokens_of(item);
    const std::optional<DirectKeys> keys = direct_keys(how_, tokens.count, q_.dim());
    if (!keys || keys->range.begin / tile != (keys->range.end - 1) / tile) return false;
    const Index page = tokens.pages[static_cast<std::size_t>(keys->range.begin / tile)];
    if (page == KvCache::Body::gone || !body_.is_open(page)) return false;
    const PageLayout& layout = body_.layout;
    const PageHead head = body_.head(page, 0);
    const Index slot = keys->range.begin % tile;
    const Type type = layout.type == CacheType::bf16 ? Type::bf16 : Type::f32;
    set_queries(to.few, q_, out, item, body_.options.kv_heads, *keys);
    to.few.keys = {layout.key_row(head, slot), type, layout.dim,
                   head.scales == nullptr ? nullptr : head.scales + slot};
    to.few.values = {layout.value_row(head, slot), type, layout.value_dim,
                     head.scales == nullptr ? nullptr : head.scales + tile + slot};
    to.few.key_step = to.few.value_step = layout.head_bytes;
    to.first_row = item * rows();
    return true;
  }

  void run_others(std::span<const Index> others, const ForwardOutput& output) {
    std::byte room[2048];  // enough for an item or two
    std::pmr::monotonic_buffer_resource memory(room, sizeof room);
    std::pmr::deque<Call> calls(&memory);
    std::pmr::vector<CachedThinKeys> keys(&memory);
    std::pmr::vector<DecodeItem> items(&memory);
    keys.reserve(others.size());
    items.reserve(others.size());
    for (const Index item : others) {
      const KvCache::Body::Tokens& tokens = tokens_of(item);
      const Call& call =
          emplace_call(calls, item_of(q_, item), body_, tokens.count, how_for(tokens), context_);
      CachedKeys(call, body_, tokens).check_visits(where, *call.plan);
      items.push_back(
          {call,
           0,
           keys.emplace_back(body_, tokens),
           {item_of(output.out, item), output.lse, output.rows, output.stats, item * rows()}});
    }
    if (std::all_of(calls.begin(), calls.end(), decodes)) return run_decode(items, context_);
    for (std::size_t i = 0; i < others.size(); ++i) {
      CachedKeys tiles(items[i].call, body_, tokens_of(others[i]));
      run_forward(items[i].call, tiles, items[i].output);
    }
  }

  /// A cache grows: tokens that a pattern names and that are not there yet may come.
  const Attention& how_for(const KvCache::Body::Tokens& tokens) {
    const Pattern pattern = among(how_.pattern, tokens.count);
    if (pattern.node() == how_.pattern.node()) return how_;
    narrowed_.push_back(how_);
    narrowed_.back().pattern = pattern;
    return narrowed_.back();
  }

  const AnyView& q_;
  const KvCache::Body& body_;
  Sequences sequences_;
  const Attention& how_;
  const Context& context_;
  std::list<Attention> narrowed_;  // none of them moves
};

}  // namespace

void check_cache_call(const AnyView& q, const KvCache& cache, Sequences sequences,
                      const Attention& how, const Context& context) {
  check_fits(q, cache, sequences, context);
  if (how.pattern.node()->has_lsh()) {
    check_lsh_cache(q, cache.body(), sequences, how, context);
  } else {
    CacheCall(q, cache, sequences, how, context).check_items();
  }
}

Attended attend(AnyView q, const KvCache& cache, std::span<const KvCache::Sequence> sequences,
                const Attention& how, const Context& context) {
  const FlushDenormals guard;
  check_fits(q, cache, sequences, context);
  const Shape rows{q.batch(), q.heads(), q.tokens()};
  Attended attended;
  attended.out = Tensor::uninitialized(
      {q.batch(), q.heads(), q.tokens(), cache.options().value_dim}, q.type());
  attended.lse = Tensor(rows);
  attended.rows.max.resize(static_cast<std::size_t>(rows.elements()));
  attended.rows.sum.resize(static_cast<std::size_t>(rows.elements()));
  if (how.stats) attended.stats = make_stats(rows);
  const ForwardOutput output{attended.out, &attended.lse, &attended.rows,
                             attended.stats ? &*attended.stats : nullptr};
  if (how.pattern.node()->has_lsh()) {
    attend_lsh_cache(q, cache.body(), sequences, how, context, output);
  } else {
    CacheCall(q, cache, sequences, how, context).run(output);
  }
  return attended;
}

void attend_into(AnyMutableView out, AnyView q, const KvCache& cache,
                 std::span<const KvCache::Sequence> sequences, const Attention& how,
                 const Context& context) {
  const FlushDenormals guard;
  check_fits(q, cache, sequences, context);
  check(!how.stats, where, ": statistics are asked for where only the output is kept; expected ",
        "attend, which returns them");
  check_output(where, "out", out, {q.batch(), q.heads(), q.tokens(), cache.options().value_dim});
  check_apart(where, out, q, "q");
  if (how.bias.dense) check_apart(where, out, how.bias.dense->values, "the dense bias");
  const ForwardOutput output{out, nullptr, nullptr, nullptr};
  if (how.pattern.node()->has_lsh()) {
    attend_lsh_cache(q, cache.body(), sequences, how, context, output);
  } else {
    CacheCall(q, cache, sequences, how, context).run(output);
  }
}

}  // namespace rapt
