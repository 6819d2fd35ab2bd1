#include "attention/decode_worker.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>

#include "attention/row_result.h"

namespace rapt {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

}  // namespace

/// Tiles outside and heads inside: a page of a cache holds all heads, and memory is read in the
/// order in which it lies.
void DecodeWorker::run(const DecodeTask& task, const DecodeRoom& room) {
  begin(task, room);
  Index before = 0;  // visited tiles that lie before
  for (const Visit& visit : task.item.call.plan->visits(0)) {
    const Index last = visit.first + std::min<Index>(task.end_tile - before, visit.count);
    for (Index j = visit.first + std::max<Index>(task.first_tile - before, 0); j < last; ++j)
      pass(task, j, j + 1 < last ? j + 1 : j, visit.mask);
    before += visit.count;
    if (before >= task.end_tile) break;
  }
  finish(task, room);
}

void DecodeWorker::load_queries(const DecodeItem& item, Index kv_head, float* to) const {
  const Call& call = item.call;
  for (Index r = 0; r < thin_rows_of(call); ++r) {
    const Index query = r % call.queries;
    const void* from = call.q.row(item.item, kv_head * call.group + r / call.queries, query);
    float* row = to + r * query_stride(call.dim);
    if (call.q.type() != Type::f32) {
      call.kernels.load_numbers(from, call.q.type(), call.dim, row);
      from = row;
    }
    call.kernels.narrow(nullptr, static_cast<const float*>(from), call.rule.query_factor(query),
                        call.dim, row);
    std::fill(row + call.dim, row + query_stride(call.dim), 0.0f);
  }
}

void DecodeWorker::begin(const DecodeTask& task, const DecodeRoom& room) {
  const Call& call = task.item.call;
  const Index rows = thin_rows_of(call), width = thin_width(call);
  const Index numbers = rows * query_stride(call.dim);
  desk_.clear(Desk::bytes_of<float>(task.heads * numbers) +
              Desk::bytes_of<SoftmaxTile>(task.heads) +
              task.heads * Desk::bytes_of<float>(rows * (max_lanes + 1)));
  queries_ = desk_.place<float>(task.heads * numbers);
  states_ = desk_.place<SoftmaxTile>(task.heads);
  // Kernels that shape logits work on whole strips of rows.
  std::fill(scores_ + rows * tile, scores_ + round_up(rows, strip) * tile, 0.0f);
  for (Index h = 0; h < task.heads; ++h) {
    load_queries(task.item, task.first_head + h, queries_ + h * numbers);
    float* lane_sums = desk_.place<float>(rows * (max_lanes + 1));
    float* reference = lane_sums + rows * max_lanes;
    float* out = room.out + h * room.out_step;
    std::fill_n(reference, rows, minus_infinity);
    std::fill_n(lane_sums, rows * max_lanes, 0.0f);
    std::fill_n(out, rows * width, 0.0f);
    states_[h] = {reference, lane_sums, nullptr, out,     nullptr,
                  width,     false,     nullptr, nullptr, nullptr};
  }
  saw_key_ = 0;
}

/// All heads of the task past one tile.
void DecodeWorker::pass(const DecodeTask& task, Index tile, Index next_tile, std::int32_t mask_id) {
  const Call& call = task.item.call;
  take_mask(call, mask_id);
  saw_key_ |= mask_sees_;
  const Index numbers = thin_rows_of(call) * query_stride(call.dim);
  for (Index h = 0; h < task.heads; ++h) {
    const bool last = h + 1 == task.heads;
    const Index head = task.first_head + h;
    visit(task.item, {head, tile, last ? task.first_head : head + 1, last ? next_tile : tile},
          queries_ + h * numbers, states_[h]);
  }
}

/// One bit word per row: all query heads of the group see what the query sees. The heads of a
/// call share their masks, and short sequences have only one.
void DecodeWorker::take_mask(const Call& call, std::int32_t mask_id) {
  if (&call == mask_call_ && mask_id == mask_id_) return;
  mask_call_ = &call;
  mask_id_ = mask_id;
  seen_ = tile;
  if (mask_id == Visit::whole) {
    mask_.set_whole();
  } else {
    const auto words = call.plan->mask(mask_id);
    std::fill(std::begin(words_), std::end(words_), std::uint64_t{0});
    for (Index r = 0; r < thin_rows_of(call); ++r)
      words_[r] = words[static_cast<std::size_t>(r % call.queries)];
    std::uint64_t any = 0;
    for (const std::uint64_t word : words_) any |= word;
    seen_ = static_cast<Index>(std::bit_width(any));
    mask_.set_few(words_, thin_rows_of(call), call.kernels.lanes);
  }
  mask_sees_ = static_cast<std::uint32_t>(mask_.rows_that_see(most_thin_rows));
}

void DecodeWorker::add_bias(const Call& call, const ThinPlace& place, Index slots) {
  for (Index r = 0; r < thin_rows_of(call); ++r) {
    const Index position = call.keys - call.queries + r % call.queries;
    float bias[tile];
    call.rule.diagonal_part(place.kv_head * call.group + r / call.queries,
                            place.key_tile * tile - position, slots, bias);
    float* row = scores_ + r * tile;
    for (Index c = 0; c < slots; ++c) row[c] += bias[c];
  }
}

void DecodeWorker::visit(const DecodeItem& item, const ThinPlace& place, const float* queries,
                         SoftmaxTile& state) {
  const Call& call = item.call;
  const ThinRows rows{thin_rows_of(call), mask_, seen_, round_up(seen_, call.kernels.lanes)};
  item.keys.scores(place, rows, queries, scores_);
  if (call.rule.has_softcap())
    call.kernels.softcap(scores_, divide_up(rows.count, strip), mask_.clips(),
                         call.rule.softcap_log2(), nullptr);
  if (call.rule.has_diagonal()) add_bias(call, place, rows.slots);
  call.kernels.absorb(scores_, rows.count, mask_.clips(), mask_.words(), state);
  item.keys.gather(place, rows, scores_, state.out);
}

void DecodeWorker::finish(const DecodeTask& task, const DecodeRoom& room) const {
  const Call& call = task.item.call;
  for (Index h = 0; h < task.heads; ++h) {
    const SoftmaxTile& state = states_[h];
    DecodePart& part = room.part[h * room.part_step];
    part.saw_key = saw_key_;
    for (Index r = 0; r < thin_rows_of(call); ++r) {
      part.reference[r] = state.reference[r];
      part.sum[r] = sum_of_lanes(state.lane_sums + r * max_lanes, call.kernels.lanes);
    }
  }
}

}  // namespace rapt
