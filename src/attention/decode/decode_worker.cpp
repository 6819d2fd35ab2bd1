#include "attention/decode/decode_worker.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>

#include "attention/forward/row_result.h"
#include "kernels/int8_kernels.h"

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
  const Index states = task.heads * rows;
  const ByteKernels* bytes = task.item.keys.bytes();
  const Index row_bytes = bytes == nullptr ? 0 : byte_query_size(call.dim);
  desk_.clear(Desk::bytes_of<float>(task.heads * numbers) +
              Desk::bytes_of<std::byte>(states * row_bytes) +
              Desk::bytes_of<SoftmaxTile>(task.heads) + Desk::bytes_of<float>(states * max_lanes) +
              Desk::bytes_of<float>(states));
  queries_ = desk_.place<float>(task.heads * numbers);
  bytes_ = bytes == nullptr ? nullptr : desk_.place<std::byte>(states * row_bytes);
  states_ = desk_.place<SoftmaxTile>(task.heads);
  float* lane_sums = desk_.place<float>(states * max_lanes);
  float* reference = desk_.place<float>(states);
  std::fill_n(lane_sums, states * max_lanes, 0.0f);
  std::fill_n(reference, states, minus_infinity);
  for (Index h = 0; h < task.heads; ++h) {
    float* queries = queries_ + h * numbers;
    load_queries(task.item, task.first_head + h, queries);
    if (bytes != nullptr)
      bytes->pack_queries(queries, rows, call.dim, bytes_ + h * rows * row_bytes);
    float* out = room.out + h * room.out_step;
    std::fill_n(out, rows * width, 0.0f);
    states_[h] = {reference + h * rows,
                  lane_sums + h * rows * max_lanes,
                  nullptr,
                  out,
                  nullptr,
                  width,
                  false,
                  nullptr,
                  nullptr,
                  nullptr};
  }
  saw_key_ = 0;
  together_ = room.out_step == rows * width ? most_thin_rows / rows : 1;
  // Kernels that shape logits work on whole strips of rows.
  const Index used = std::min(together_, task.heads) * rows;
  std::fill(scores_ + used * tile, scores_ + round_up(used, strip) * tile, 0.0f);
}

/// All heads of the task past one tile: one after the other, as memory lies, or where only some
/// slots are read as many as there is room for. Alone, a head of few keys waits at every step for
/// the step before.
void DecodeWorker::pass(const DecodeTask& task, Index tile_index, Index next_tile,
                        std::int32_t mask_id) {
  take_mask(task.item.call, mask_id);
  saw_key_ |= mask_sees_;
  const Call& call = task.item.call;
  if (mask_.whole() && !call.rule.has_softcap() && !call.rule.has_diagonal() &&
      task.item.keys.pass({task.first_head, tile_index, task.first_head, next_tile}, task.heads,
                          thin_rows_of(call), {queries_, bytes_}, states_))
    return;
  const Index together = seen_ < tile ? together_ : 1;
  for (Index h = 0; h < task.heads; h += together)
    visit(task, {h, std::min(task.heads, h + together)}, tile_index, next_tile);
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
    for (Index r = 0, query = 0; r < most_thin_rows; ++r) {
      words_[r] = words[static_cast<std::size_t>(query)];
      query = query + 1 < call.queries ? query + 1 : 0;
    }
    std::uint64_t any = 0;
    for (const std::uint64_t word : words_) any |= word;
    seen_ = static_cast<Index>(std::bit_width(any));
    mask_.set_few(words_, most_thin_rows, call.kernels.lanes);
  }
  mask_sees_ = static_cast<std::uint32_t>(mask_.rows_that_see(most_thin_rows));
}

void DecodeWorker::add_bias(const Call& call, const ThinPlace& place, Index slots,
                            float* scores) const {
  for (Index r = 0; r < thin_rows_of(call); ++r) {
    const Index position = call.keys - call.queries + r % call.queries;
    float bias[tile];
    call.rule.diagonal_part(place.kv_head * call.group + r / call.queries,
                            place.key_tile * tile - position, slots, bias);
    float* row = scores + r * tile;
    for (Index c = 0; c < slots; ++c) row[c] += bias[c];
  }
}

void DecodeWorker::visit(const DecodeTask& task, Heads heads, Index key_tile, Index next_tile) {
  const Call& call = task.item.call;
  const ThinKeys& keys = task.item.keys;
  const Index count = thin_rows_of(call), all = (heads.end - heads.begin) * count;
  const Index numbers = count * query_stride(call.dim);
  const ThinRows rows{count, mask_, seen_, round_up(seen_, call.kernels.lanes)};
  const auto for_each_head = [&](const auto& run) {
    for (Index h = heads.begin; h < heads.end; ++h) {
      const Index head = task.first_head + h;
      const bool last = h + 1 == task.heads;
      const ThinPlace place{head, key_tile, last ? task.first_head : head + 1,
                            last ? next_tile : key_tile};
      run(place, h, scores_ + (h - heads.begin) * count * tile);
    }
  };
  for_each_head([&](const ThinPlace& place, Index h, float* scores) {
    keys.scores(place, rows, queries_ + h * numbers, scores);
  });
  if (call.rule.has_softcap())
    call.kernels.softcap(scores_, divide_up(all, strip), mask_.clips(), call.rule.softcap_log2(),
                         nullptr);
  if (call.rule.has_diagonal()) {
    for_each_head([&](const ThinPlace& place, Index, float* scores) {
      add_bias(call, place, rows.slots, scores);
    });
  }
  call.kernels.absorb(scores_, all, mask_.clips(), mask_.words(), states_[heads.begin]);
  for_each_head([&](const ThinPlace& place, Index h, float* scores) {
    keys.gather(place, rows, scores, states_[h].out);
  });
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
