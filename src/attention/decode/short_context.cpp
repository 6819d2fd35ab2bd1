#include "attention/decode/short_context.h"

#include <cmath>
#include <vector>

#include "attention/decode/decode.h"
#include "attention/pattern/pattern_node.h"
#include "base/indexed_vector.h"
#include "kernels/context.h"

namespace rapt::detail {
namespace {

/// One item of a batch, where its rows begin among all, and where they go.
struct Item {
  ShortContextHeads heads;
  Index first_row;
  const ForwardOutput* output;
};

template <class View>
Index size_of_number(const View& view) {
  return static_cast<Index>(size_of(view.type()));
}

/// What one item reads of keys and values.
Index bytes_of(const ShortContextHeads& heads) {
  return heads.heads * heads.keys.count * (heads.dim + heads.value_dim) * Index{sizeof(float)};
}

/// One key head of an item.
ShortContextHeads head_of(const ShortContextHeads& all, Index head) {
  const auto moved = [](const void* at, Index bytes) {
    return static_cast<const void*>(static_cast<const std::byte*>(at) + bytes);
  };
  const auto moved_rows = [&](StoredRows rows, Index bytes) {
    rows.data = moved(rows.data, bytes);
    if (rows.scales != nullptr) rows.scales += bytes / Index{sizeof(float)};
    return rows;
  };
  ShortContextHeads one = all;
  const Index row = head * all.group;
  one.q = moved(all.q, row * all.q_step);
  one.out = static_cast<std::byte*>(all.out) + row * all.out_step;
  one.keys = moved_rows(all.keys, head * all.key_step);
  one.values = moved_rows(all.values, head * all.value_step);
  one.heads = 1;
  if (all.max == nullptr) return one;
  one.max += row;
  one.sum += row;
  return one;
}

void write_lse(const Item& item, float* lse) {
  for (Index r = 0; r < item.heads.heads * item.heads.group; ++r)
    lse[item.first_row + r] = static_cast<float>(
        (static_cast<double>(item.heads.max[r]) + std::log2(item.heads.sum[r])) * ln_2);
}

/// Whether all of them are in the partial page of a cache, which has rows.
bool in_partial_page(const CachedSequence& cached, Range range, Index tokens) {
  const Index first = range.begin / tile;
  if (first != (range.end - 1) / tile) return false;
  if (cached.tokens == nullptr) return first == tokens / tile;
  const Index page = cached.tokens->pages[first];
  return page != KvCache::Impl::gone && cached.cache->is_partial(page);
}

/// Everything but where keys and values are.
void set_queries(ShortContextHeads& heads, const AnyView& q, const AnyMutableView& out, Index item,
                 Index kv_heads, const ShortContext& keys) {
  heads.q = q.row(item, 0, 0);
  heads.q_type = q.type();
  heads.q_step = q.stride(1) * size_of_number(q);
  heads.out = out.row(item, 0, 0);
  heads.out_type = out.type();
  heads.out_step = out.stride(1) * size_of_number(out);
  heads.heads = kv_heads;
  heads.group = q.heads() / kv_heads;
  heads.dim = q.dim();
  heads.value_dim = out.dim();
  heads.factor = keys.factor;
  heads.max = nullptr;
  heads.sum = nullptr;
}

/// Heads over keys in the caller's memory.
void set_operands(ShortContextHeads& heads, const Request& request, Index item,
                  const Range& range) {
  const auto rows = [&](const AnyView& operand) {
    return StoredRows{operand.row(item, 0, range.begin), operand.type(), operand.stride(2),
                      range.end - range.begin};
  };
  heads.keys = rows(request.k);
  heads.values = rows(request.v);
  heads.key_step = request.k.stride(1) * size_of_number(request.k);
  heads.value_step = request.v.stride(1) * size_of_number(request.v);
}

/// Heads over a partial page of a cache.
void set_page(ShortContextHeads& heads, const CachedSequence& cached, const Range& range) {
  const KvCache::Impl& cache = *cached.cache;
  const Index page = cached.tokens->pages[range.begin / tile];
  const PageHead head = cache.head(page, 0);
  const Index slot = range.begin % tile, count = range.end - range.begin;
  heads.keys = cache.layout.key_rows(head, slot, count);
  heads.values = cache.layout.value_rows(head, slot, count);
  heads.key_step = heads.value_step = cache.layout.head_bytes;
}

Item item_of(const Job& job, Index i) {
  const Request& r = job.request;
  const ShortContext& keys = *r.short_context;
  Item item;
  item.output = &job.output;
  item.first_row = job.output.first_row + i * r.q.heads();
  set_queries(item.heads, r.q, job.output.out, i, r.k.heads(), keys);
  if (r.cached) {
    set_page(item.heads, *r.cached, keys.range);
  } else {
    set_operands(item.heads, r, i, keys.range);
  }
  return item;
}

void run(std::span<Item> items, const Context& context) {
  Index bytes = 0;
  for (Item& item : items) {
    bytes += bytes_of(item.heads);
    if (item.output->rows == nullptr) continue;
    item.heads.max = item.output->rows->max.data() + item.first_row;
    item.heads.sum = item.output->rows->sum.data() + item.first_row;
  }
  const auto attend_short_context = kernels_of(context).decode.attend_short_context;
  if (bytes < bytes_worth_threads) {
    for (const Item& item : items) attend_short_context(item.heads);
  } else {
    const Index heads = items.front().heads.heads;
    for_each_task(context, std::ssize(items) * heads, [&](Index task, Index) {
      attend_short_context(head_of(element(items, task / heads).heads, task % heads));
    });
  }
  for (const Item& item : items)
    if (item.output->lse != nullptr) write_lse(item, item.output->lse->data());
}

}  // namespace

std::optional<ShortContext> short_context(const Request& r) {
  const Attention& how = r.how;
  const Lengths lengths{1, r.keys()};
  const std::optional<Range> range = node_of(how.pattern)->range_of(query_position(0, lengths));
  if (!range || range->begin == range->end || range->end - range->begin > tile) return std::nullopt;
  if (r.cached && !in_partial_page(*r.cached, *range, r.keys())) return std::nullopt;
  if (how.plan && !(how.plan->lengths() == lengths && how.plan->pattern() == how.pattern))
    return std::nullopt;
  const double scale = scale_of(how.scale, r.q.dim(), range->end - range->begin);
  if (!std::isfinite(scale) || !factor_fits(scale)) return std::nullopt;
  if (how.scale.rule == Scale::Rule::log_n &&
      !factor_fits(scale_of(how.scale, r.q.dim(), r.keys())))
    return std::nullopt;
  return ShortContext{*range, scale * log2_e};
}

const char* no_short_context(const Request& r) {
  return r.cached ? "not 1 to 64 neighbouring keys in the cache's last page, not yet full"
                  : "not 1 to 64 neighbouring keys";
}

void run_short_context(std::span<const Job> jobs) {
  const Context& context = jobs.front().request.context;
  if (jobs.size() == 1 && jobs.front().request.q.batch() == 1) {
    Item item = item_of(jobs.front(), 0);
    run({&item, 1}, context);
  } else {
    std::vector<Item> items;
    for (const Job& job : jobs)
      for (Index i = 0; i < job.request.q.batch(); ++i) items.push_back(item_of(job, i));
    run(items, context);
  }
}

std::string describe_short_context(const Request& request) {
  const Range range = request.short_context->range;
  return "kernel    f32 over " + std::to_string(range.end - range.begin) +
         " keys and values where they are, exact softmax; no plan\n";
}

}  // namespace rapt::detail
