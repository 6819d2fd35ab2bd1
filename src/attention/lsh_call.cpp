#include "attention/lsh_call.h"

#include <algorithm>
#include <cmath>

#include "attention/lsh_hash.h"
#include "attention/pattern_node.h"
#include "base/check.h"

namespace rapt {

void check_lsh_score(const char* where, const Attention& how) {
  const bool biased = how.bias.alibi || how.bias.kerple || how.bias.table || how.bias.keys ||
                      how.bias.dense || !how.relative_values.empty();
  check(
      !biased && how.sinks.empty() && !how.stats && how.scale.rule != Scale::Rule::log_n, where,
      ": a bias, sinks, statistics or the log_n scale are given, expected none of them under lsh");
  check(how.plan == nullptr, where, ": a plan is given, expected none under lsh");
}

namespace {

Lsh leaf_of(const char* where, const AnyView& q, const AnyView& k, const AnyView& v,
            const Attention& how) {
  check_call(where, q, k, v, how);
  check(q.shape() == k.shape(), where, ": q has shape ", q.shape(), " and k ", k.shape(),
        ", expected the same under lsh");
  if (how.rotations) check_memory(where, "rotations", *how.rotations);
  check_lsh_score(where, how);
  return *split_lsh(how.pattern).lsh;
}

/// Which chunks of all rounds each chunk sees: neighbours in a ring, each counted once.
Pattern ring_of_chunks(const Lsh& lsh, Index slots) {
  const Index chunks = slots / lsh.chunk;
  constexpr Index most = Index{1} << 27;
  const Index steps = std::min(chunks, lsh.before + lsh.after + 1);  // once round the ring is all
  check(chunks <= most / steps, "lsh: ", chunks, " chunks that see ", steps,
        " each, expected at most ", most, " meetings; larger chunks have fewer");
  std::vector<std::vector<Index>> table(static_cast<std::size_t>(chunks));
  for (Index c = 0; c < chunks; ++c) {
    std::vector<Index>& seen = table[static_cast<std::size_t>(c)];
    for (Index step = 0; step < steps; ++step)
      seen.push_back(((c - lsh.before + step) % chunks + chunks) % chunks);
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  }
  return blocks(lsh.chunk, std::move(table));
}

Attention in_slots(const Attention& how, const Lsh& lsh, const LshOrder& order) {
  Attention slots = how;
  slots.pattern = order.sorted() ? ring_of_chunks(lsh, order.slots()) : full();
  slots.rotations.reset();
  slots.order.reset();
  slots.plan = std::make_shared<const Plan>(slots.pattern, Lengths{order.slots(), order.slots()});
  return slots;
}

/// What forward kept, if it can be of this call.
std::shared_ptr<const LshOrder> checked(const char* where, std::shared_ptr<const LshOrder> order,
                                        const AnyView& q, const Lsh& lsh) {
  check(order->tokens() == q.tokens() && order->owners() == q.batch() * q.heads() &&
            order->lsh() == lsh,
        where,
        ": the order is that of another call, expected Rows::order of attend with the same "
        "operands and pattern");
  return order;
}

}  // namespace

LshCall::LshCall(const char* where, AnyView q, AnyView k, AnyView v, const Attention& how,
                 const Context& context, std::shared_ptr<const LshOrder> order)
    : q_(q),
      k_(k),
      v_(v),
      context_(context),
      lsh_(leaf_of(where, q, k, v, how)),
      ranges_(split_lsh(how.pattern).rest, {q.tokens(), q.tokens()}),
      order_(order != nullptr
                 ? checked(where, std::move(order), q, lsh_)
                 : sort_tokens({q_, k_, lsh_, how.rotations, ranges_.padding(), context_})),
      slot_how_(in_slots(how, lsh_, *order_)),
      seed_(how.dropout.seed),
      slot_rule_(kernels_of(context), ranges_, lsh_, *order_),
      key_factors_(q.tokens()),
      slot_q_(checked_product({slots(), q.dim()})),
      keys_(*this) {}

void LshCall::find_key_factors() {
  if (!shared_keys()) return;
  for_each_task(context_, divide_up(tokens(), tile), [&](Index task, Index) {
    float row[max_dim];
    for (Index i = task * tile; i < std::min(tokens(), (task + 1) * tile); ++i) {
      kernels().load_numbers(k_.row(item(), head(), i), k_.type(), dim(), row);
      key_factors_[i] = inverse_rms(row, dim());
    }
  });
}

void LshCall::gather_rows(const AnyView& from, const std::int32_t* positions, Index count,
                          const double* factors, float* to) const {
  const Index numbers = from.dim();
  const Index bytes = numbers * static_cast<Index>(size_of(from.type()));
  for (Index s = 0; s < count; ++s, to += numbers) {
    if (s + rows_ahead < count && positions[s + rows_ahead] >= 0)
      prefetch_row(from.row(item(), head(), positions[s + rows_ahead]), bytes);
    if (positions[s] < 0) {
      std::fill(to, to + numbers, 0.0f);
      continue;
    }
    kernels().load_numbers(from.row(item(), head(), positions[s]), from.type(), numbers, to);
    if (factors == nullptr) continue;
    const auto factor = static_cast<float>(factors[positions[s]]);
    for (Index c = 0; c < numbers; ++c) to[c] *= factor;
  }
}

void LshCall::gather(const AnyView& from, const std::int32_t* positions, const double* factors,
                     float* to) const {
  for_each_task(context_, divide_up(slots(), tile), [&](Index task, Index) {
    const Index first = task * tile;
    gather_rows(from, positions + first, std::min(tile, slots() - first), factors,
                to + first * from.dim());
  });
}

PackedTile LshCall::SlotKeys::get(Index, Index, Index key_tile, float* room) {
  const Call& call = lsh_.call();
  const Index count = call.tile_keys(key_tile);
  const std::int32_t* positions = lsh_.key_positions() + key_tile * tile;
  float* values = room + tile * call.dim;
  float* rows = values + tile * call.padded(call.value_dim);
  lsh_.gather_rows(lsh_.k_, positions, count, lsh_.key_factors(), rows);
  call.kernels.pack_panels({rows, Type::f32, call.dim, count}, call.dim, room);
  lsh_.gather_rows(lsh_.v_, positions, count, nullptr, rows);
  const bool finite = call.kernels.pack_rows({rows, Type::f32, call.value_dim, count},
                                             call.value_dim, nullptr, values);
  return {{.panels = room}, values, nullptr, finite};
}

void LshCall::take(Index item, Index head) {
  owner_ = item * heads() + head;
  find_key_factors();
  gather(q_, query_positions(), nullptr, slot_q_.data());
  slot_rule_.take(query_positions(), key_positions(), slots());
  slot_how_.dropout.seed = seed_ + static_cast<std::uint64_t>(owner_) * 0x9E3779B97F4A7C15u;
  call_ = std::make_unique<Call>("lsh", slot_view(slot_q_, dim()), stand_in({1, 1, slots(), dim()}),
                                 stand_in({1, 1, slots(), value_dim()}), slot_how_, context_);
  call_->slots = &slot_rule_;
}

void LshCall::take_keys() {
  if (slot_k_.size() == 0) {
    slot_k_ = Buffer<float>(checked_product({slots(), dim()}));
    slot_v_ = Buffer<float>(checked_product({slots(), value_dim()}));
  }
  gather(k_, key_positions(), key_factors(), slot_k_.data());
  gather(v_, key_positions(), nullptr, slot_v_.data());
  call_->k = slot_view(slot_k_, dim());
  call_->v = slot_view(slot_v_, value_dim());
}

}  // namespace rapt
