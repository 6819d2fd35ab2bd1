#include "attention/lsh/lsh_call.h"

#include <algorithm>
#include <cmath>

#include "attention/lsh/lsh_rotations.h"
#include "attention/pattern/pattern_node.h"
#include "base/check.h"
#include "base/indexed_vector.h"

namespace rapt::detail {

namespace {

/// Which chunks of all rounds each chunk sees: neighbours in a ring, each counted once.
Pattern ring_of_chunks(const Lsh& lsh, Index sorted_count) {
  const Index chunks = sorted_count / lsh.chunk;
  constexpr Index most = Index{1} << 27;
  const Index steps = std::min(chunks, lsh.before + lsh.after + 1);  // once round the ring is all
  check(chunks <= most / steps, "lsh: ", chunks, " chunks that see ", steps,
        " each, expected at most ", most, " meetings; larger chunks have fewer");
  IndexedVector<std::vector<Index>> table(chunks);
  for (Index c = 0; c < chunks; ++c) {
    std::vector<Index>& seen = table[c];
    for (Index step = 0; step < steps; ++step)
      seen.push_back(((c - lsh.before + step) % chunks + chunks) % chunks);
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  }
  return blocks(lsh.chunk, std::move(table));
}

Attention in_sorted_order(const Attention& how, const Lsh& lsh, const LshOrder& order) {
  Attention sorted = how;
  sorted.pattern = order.sorted() ? ring_of_chunks(lsh, order.sorted_count()) : full();
  sorted.rotations.reset();
  sorted.order.reset();
  sorted.plan = std::make_shared<const Plan>(sorted.pattern,
                                             Lengths{order.sorted_count(), order.sorted_count()});
  return sorted;
}

/// What forward kept, if it can be of this call.
std::shared_ptr<const LshOrder> checked(const char* where, std::shared_ptr<const LshOrder> order,
                                        const AnyView& q, const Lsh& lsh) {
  check(order->tokens() == q.tokens() && order->batch_heads() == q.batch() * q.heads() &&
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
  Attention sorted = in_sorted_order(r.how, *split.lsh, *order);
  return std::make_shared<const Common>(
      Common{*split.lsh, std::move(ranges), std::move(order), std::move(sorted)});
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
      sorted_how_(common_->how),
      sorted_rule_(kernels_of(context), common_->ranges, common_->lsh, order()),
      key_factors_(shared_keys() ? q.tokens() : 0),
      sorted_factors_(shared_keys() ? sorted_count() : 0),
      keys_(*this) {}

AnyView LshCall::head_of(const AnyView& operand) const {
  return AnyView::unchecked(operand.row(item(), head(), 0), operand.type(),
                            {1, 1, operand.tokens(), operand.dim()}, operand.strides());
}

AnyView LshCall::contiguous_rows(const AnyView& operand, Buffer<float>& scratch) const {
  if (rows_are_contiguous(operand)) return head_of(operand);
  const Index numbers = operand.dim();
  if (scratch.size() == 0) scratch = Buffer<float>(checked_product({tokens(), numbers}));
  for_each_task(context_, divide_up(tokens(), tile), [&](Index task, Index) {
    for (Index i = task * tile; i < std::min(tokens(), (task + 1) * tile); ++i)
      kernels().vectors.load(operand.row(item(), head(), i), operand.type(), numbers,
                             scratch.data() + i * numbers);
  });
  return AnyView::unchecked(scratch.data(), Type::f32, {1, 1, tokens(), numbers},
                            {scratch.size(), scratch.size(), numbers, 1});
}

/// Keys are the queries if they are at the same address.
AnyView LshCall::head_keys() {
  const bool same =
      k_.data() == q_.data() && k_.type() == q_.type() && k_.strides() == q_.strides();
  return same ? call_->q : contiguous_rows(k_, key_scratch_);
}

void LshCall::find_key_factors() {
  if (!shared_keys()) return;
  for_each_task(context_, divide_up(tokens(), tile), [&](Index task, Index) {
    float row[max_dim];
    for (Index i = task * tile; i < std::min(tokens(), (task + 1) * tile); ++i) {
      kernels().vectors.load(call_->k.row(0, 0, i), call_->k.type(), dim(), row);
      key_factors_[i] = inverse_rms(row, dim());
    }
  });
  for (Index sorted_index = 0; sorted_index < sorted_count(); ++sorted_index) {
    const Index token = key_order_.rows[sorted_index];
    const double factor = token < 0 ? 0 : key_factors_[token];
    sorted_factors_[sorted_index] = static_cast<double>(static_cast<float>(factor));
  }
  call_->key_factors = sorted_factors_.data();
}

PackedTile<float> LshCall::SortedKeys::get(Index, Index, Index key_tile, float* scratch) {
  const Call& call = lsh_.call();
  const TileKernels<float>& tiles = call.kernels.tiles;
  float* values = scratch + tile * call.dim;
  tiles.pack_panels(call.key_rows(call.k, 0, 0, key_tile), call.dim, call.factors_of_keys(key_tile),
                    scratch);
  const bool finite =
      tiles.pack_rows(call.key_rows(call.v, 0, 0, key_tile), call.value_dim, nullptr, values);
  return {scratch, values, finite};
}

void LshCall::SortedKeys::prefetch(Index, Index, Index key_tile) {
  const Call& call = lsh_.call();
  if (key_tile >= call.key_tiles()) return;
  prefetch_rows(call.key_rows(call.k, 0, 0, key_tile), call.dim);
  prefetch_rows(call.key_rows(call.v, 0, 0, key_tile), call.value_dim);
}

void LshCall::load_head(Index item, Index head) {
  batch_head_ = item * heads() + head;
  const std::int32_t* queries = order().queries(batch_head_);
  const std::int32_t* keys = order().keys(batch_head_);
  sorted_rule_.load(queries, keys, sorted_count());
  // The first queries of the ring see its end and are complete last, so all of them are added;
  // keys come round by round.
  query_order_ = {queries, 0};
  key_order_ = {keys, order().sorted_per_round()};
  sorted_how_.dropout.seed =
      common_->how.dropout.seed + static_cast<std::uint64_t>(batch_head_) * 0x9E3779B97F4A7C15u;
  // A call of as many tokens as are sorted; their rows are then found by their order.
  const auto sorted_shape = [&](Index numbers) {
    return stand_in({1, 1, sorted_count(), numbers});
  };
  call_ = std::make_unique<Call>(Request{"lsh", sorted_shape(dim()), sorted_shape(dim()),
                                         sorted_shape(value_dim()), sorted_how_, context_});
  call_->q = contiguous_rows(q_, query_scratch_);
  call_->k = head_keys();
  call_->v = contiguous_rows(v_, value_scratch_);
  call_->sorted_rule = &sorted_rule_;
  call_->query_order = &query_order_;
  call_->key_order = &key_order_;
  find_key_factors();
}

}  // namespace rapt::detail
