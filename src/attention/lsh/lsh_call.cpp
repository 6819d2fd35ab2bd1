#include "attention/lsh/lsh_call.h"

#include <algorithm>
#include <cmath>

#include "attention/lsh/lsh_hash.h"
#include "attention/pattern/pattern_node.h"
#include "base/check.h"

namespace rapt {

namespace {

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

std::shared_ptr<const LshCall::Common> LshCall::common_of(const Request& r,
                                                          std::shared_ptr<const LshOrder> order) {
  const SplitPattern split = split_lsh(r.how.pattern);
  PositionRanges ranges(split.rest, {r.queries(), r.queries()});
  check(r.how.order == nullptr || !r.how.rotations, r.where,
        ": rotations and an order of tokens are given, expected one of them");
  order = order != nullptr
              ? checked(r.where, std::move(order), r.q, *split.lsh)
              : sort_tokens({r.q, r.k, *split.lsh, r.how.rotations, ranges.padding(), r.context});
  Attention slots = in_slots(r.how, *split.lsh, *order);
  return std::make_shared<const Common>(
      Common{*split.lsh, std::move(ranges), std::move(order), std::move(slots)});
}

LshCall::LshCall(const Request& r, std::shared_ptr<const LshOrder> order)
    : LshCall(r.q, r.k, r.v, r.context, common_of(r, std::move(order))) {}

LshCall::LshCall(const LshCall& other, const Context& context)
    : LshCall(other.q_, other.k_, other.v_, context, other.common_) {}

LshCall::LshCall(AnyView q, AnyView k, AnyView v, const Context& context,
                 std::shared_ptr<const Common> common)
    : q_(q),
      k_(k),
      v_(v),
      context_(context),
      common_(std::move(common)),
      slot_how_(common_->how),
      slot_rule_(kernels_of(context), common_->ranges, common_->lsh, order()),
      key_factors_(shared_keys() ? q.tokens() : 0),
      slot_factors_(shared_keys() ? slots() : 0),
      keys_(*this) {}

AnyView LshCall::head_of(const AnyView& operand) const {
  return AnyView::trusted(operand.row(item(), head(), 0), operand.type(),
                          {1, 1, operand.tokens(), operand.dim()}, operand.strides());
}

AnyView LshCall::close_rows(const AnyView& operand, Buffer<float>& room) const {
  if (rows_are_close(operand)) return head_of(operand);
  const Index numbers = operand.dim();
  if (room.size() == 0) room = Buffer<float>(checked_product({tokens(), numbers}));
  for_each_task(context_, divide_up(tokens(), tile), [&](Index task, Index) {
    for (Index i = task * tile; i < std::min(tokens(), (task + 1) * tile); ++i)
      kernels().load_numbers(operand.row(item(), head(), i), operand.type(), numbers,
                             room.data() + i * numbers);
  });
  return AnyView::trusted(room.data(), Type::f32, {1, 1, tokens(), numbers},
                          {room.size(), room.size(), numbers, 1});
}

/// Keys are queries where they lie at the same place.
AnyView LshCall::head_keys() {
  const bool same =
      k_.data() == q_.data() && k_.type() == q_.type() && k_.strides() == q_.strides();
  return same ? call_->q : close_rows(k_, key_room_);
}

void LshCall::find_key_factors() {
  if (!shared_keys()) return;
  for_each_task(context_, divide_up(tokens(), tile), [&](Index task, Index) {
    float row[max_dim];
    for (Index i = task * tile; i < std::min(tokens(), (task + 1) * tile); ++i) {
      kernels().load_numbers(call_->k.row(0, 0, i), call_->k.type(), dim(), row);
      key_factors_[i] = inverse_rms(row, dim());
    }
  });
  for (Index slot = 0; slot < slots(); ++slot) {
    const Index token = key_order_.rows[slot];
    const double factor = token < 0 ? 0 : key_factors_[token];
    slot_factors_[slot] = static_cast<double>(static_cast<float>(factor));
  }
  call_->key_factors = slot_factors_.data();
}

PackedTile LshCall::SlotKeys::get(Index, Index, Index key_tile, float* room) {
  const Call& call = lsh_.call();
  float* values = room + tile * call.dim;
  call.kernels.pack_panels(call.key_rows(call.k, 0, 0, key_tile), call.dim,
                           call.factors_of_keys(key_tile), room);
  const bool finite = call.kernels.pack_rows(call.key_rows(call.v, 0, 0, key_tile), call.value_dim,
                                             nullptr, values);
  return {{.panels = room}, values, nullptr, finite};
}

void LshCall::SlotKeys::expect(Index, Index, Index key_tile) {
  const Call& call = lsh_.call();
  if (key_tile >= call.key_tiles()) return;
  expect_rows(call.key_rows(call.k, 0, 0, key_tile), call.dim);
  expect_rows(call.key_rows(call.v, 0, 0, key_tile), call.value_dim);
}

void LshCall::take(Index item, Index head) {
  owner_ = item * heads() + head;
  const std::int32_t* queries = order().queries(owner_);
  const std::int32_t* keys = order().keys(owner_);
  slot_rule_.take(queries, keys, slots());
  // The first queries of the ring see its end and are complete last, so all of them are added;
  // keys come round by round.
  query_order_ = {queries, 0};
  key_order_ = {keys, order().slots_per_round()};
  slot_how_.dropout.seed =
      common_->how.dropout.seed + static_cast<std::uint64_t>(owner_) * 0x9E3779B97F4A7C15u;
  // A call of as many tokens as there are slots; their rows are then found by their order.
  const auto in_slots = [&](Index numbers) { return stand_in({1, 1, slots(), numbers}); };
  call_ = std::make_unique<Call>(
      Request{"lsh", in_slots(dim()), in_slots(dim()), in_slots(value_dim()), slot_how_, context_});
  call_->q = close_rows(q_, query_room_);
  call_->k = head_keys();
  call_->v = close_rows(v_, value_room_);
  call_->slots = &slot_rule_;
  call_->query_order = &query_order_;
  call_->key_order = &key_order_;
  find_key_factors();
}

}  // namespace rapt
