#include "attention/direct.h"

#include <cmath>
#include <memory_resource>

#include "attention/decode.h"
#include "attention/pattern_node.h"
#include "kernels/context.h"

namespace rapt {
namespace {

bool is_empty(const Bias& bias) {
  return !bias.alibi && !bias.kerple && !bias.table && !bias.keys && !bias.dense;
}

template <class View>
Index size_of_number(const View& view) {
  return static_cast<Index>(size_of(view.type()));
}

/// The first key head of an item, from some token on.
FewRows rows_of(const AnyView& operand, Index item, Index first) {
  return {operand.row(item, 0, first), operand.type(), operand.stride(2), nullptr};
}

/// What one item reads of keys and values.
Index bytes_of(const FewKeys& few) {
  return few.heads * few.count * (few.dim + few.value_dim) * Index{sizeof(float)};
}

/// One key head of an item.
FewKeys head_of(const FewKeys& all, Index head) {
  const auto moved = [](const void* at, Index bytes) {
    return static_cast<const void*>(static_cast<const std::byte*>(at) + bytes);
  };
  const auto moved_rows = [&](FewRows rows, Index bytes) {
    rows.data = moved(rows.data, bytes);
    if (rows.scales != nullptr) rows.scales += bytes / Index{sizeof(float)};
    return rows;
  };
  FewKeys one = all;
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

void write_lse(const DirectItem& item, float* lse) {
  for (Index r = 0; r < item.few.heads * item.few.group; ++r)
    lse[item.first_row + r] = static_cast<float>(
        (static_cast<double>(item.few.max[r]) + std::log2(item.few.sum[r])) * ln_2);
}

}  // namespace

bool may_go_directly(const AnyView& q, const Attention& how) {
  return q.shape().rank() == 4 && q.tokens() == 1 && q.heads() > 0 && !how.strict && !how.stats &&
         how.softcap == 0 && is_empty(how.bias) && how.relative_values.empty() &&
         how.sinks.empty() && how.dropout.rate == 0 && !how.rotations && how.order == nullptr;
}

std::optional<DirectKeys> direct_keys(const Attention& how, Index keys, Index dim) {
  const bool has_base = how.scale.rule == Scale::Rule::log_n;
  if (!std::isfinite(how.scale.number) || (has_base && how.scale.number <= 1)) return std::nullopt;
  const Lengths lengths{1, keys};
  const std::optional<Range> range = how.pattern.node()->range_of(asked(0, lengths));
  if (!range || range->begin == range->end || range->end - range->begin > tile) return std::nullopt;
  if (how.plan && !(how.plan->lengths() == lengths && how.plan->pattern() == how.pattern))
    return std::nullopt;
  const double scale = scale_of(how.scale, dim, range->end - range->begin);
  if (!std::isfinite(scale) || !factor_fits(scale)) return std::nullopt;
  if (has_base && !factor_fits(scale_of(how.scale, dim, keys))) return std::nullopt;
  return DirectKeys{*range, scale * log2_e};
}

std::optional<DirectKeys> direct_keys(const Call& call) {
  if (!may_go_directly(call.q, call.how)) return std::nullopt;
  return direct_keys(call.how, call.keys, call.dim);
}

void set_queries(FewKeys& few, const AnyView& q, const AnyMutableView& out, Index item,
                 Index kv_heads, const DirectKeys& keys) {
  few.q = q.row(item, 0, 0);
  few.q_type = q.type();
  few.q_step = q.stride(1) * size_of_number(q);
  few.out = out.row(item, 0, 0);
  few.out_type = out.type();
  few.out_step = out.stride(1) * size_of_number(out);
  few.heads = kv_heads;
  few.group = q.heads() / kv_heads;
  few.count = keys.range.end - keys.range.begin;
  few.dim = q.dim();
  few.value_dim = out.dim();
  few.factor = keys.factor;
  few.max = nullptr;
  few.sum = nullptr;
}

void run_direct(std::span<DirectItem> items, const ForwardOutput& output, const Context& context) {
  Index bytes = 0;
  for (DirectItem& item : items) {
    bytes += bytes_of(item.few);
    if (output.rows == nullptr) continue;
    item.few.max = output.rows->max.data() + item.first_row;
    item.few.sum = output.rows->sum.data() + item.first_row;
  }
  const auto attend_few = kernels_of(context).attend_few;
  if (bytes < bytes_worth_threads) {
    for (const DirectItem& item : items) attend_few(item.few);
  } else {
    const Index heads = items.front().few.heads;
    for_each_task(context, std::ssize(items) * heads, [&](Index task, Index) {
      attend_few(head_of(items[static_cast<std::size_t>(task / heads)].few, task % heads));
    });
  }
  if (output.lse == nullptr) return;
  for (const DirectItem& item : items) write_lse(item, output.lse->data());
}

void run_direct(const AnyView& q, const AnyView& k, const AnyView& v, const DirectKeys& keys,
                const ForwardOutput& output, const Context& context) {
  std::byte room[1024];  // enough for a few items
  std::pmr::monotonic_buffer_resource memory(room, sizeof room);
  std::pmr::vector<DirectItem> items(&memory);
  items.reserve(static_cast<std::size_t>(q.batch()));
  for (Index item = 0; item < q.batch(); ++item) {
    DirectItem& to = items.emplace_back();
    to.first_row = item * q.heads();
    set_queries(to.few, q, output.out, item, k.heads(), keys);
    to.few.keys = rows_of(k, item, keys.range.begin);
    to.few.values = rows_of(v, item, keys.range.begin);
    to.few.key_step = k.stride(1) * size_of_number(k);
    to.few.value_step = v.stride(1) * size_of_number(v);
  }
  run_direct(items, output, context);
}

}  // namespace rapt
