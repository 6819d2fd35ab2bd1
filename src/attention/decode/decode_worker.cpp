#include "attention/decode/decode_worker.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "attention/forward/row_result.h"
#include "base/indexed_vector.h"
#include "base/numerics.h"

namespace rapt::detail {

/// Tiles outside and heads inside: a page of a cache holds all heads, and memory is read in order.
void DecodeWorker::run(const DecodeTask& task, const DecodeResults& results) {
  begin(task, results);
  Index before = 0;  // visited tiles before this visit
  for (const Visit& visit : task.item.call.plan->visits(0)) {
    const Index last = visit.first + std::min<Index>(task.end_tile - before, visit.count);
    for (Index j = visit.first + std::max<Index>(task.first_tile - before, 0); j < last; ++j)
      attend_tile(task, j, j + 1 < last ? j + 1 : j, visit.mask);
    before += visit.count;
    if (before >= task.end_tile) break;
  }
  finish(task, results);
}

void DecodeWorker::load_queries(const DecodeItem& item, Index kv_head, float* to) const {
  const Call& call = item.call;
  for (Index r = 0; r < rows_per_kv_head(call); ++r) {
    const Index query = r % call.queries;
    const void* from = call.q.row(item.item, kv_head * call.group + r / call.queries, query);
    float* row = to + r * DecodeKernels::query_stride(call.dim);
    if (call.q.type() != Type::f32) {
      call.kernels.vectors.load(from, call.q.type(), call.dim, row);
      from = row;
    }
    call.kernels.vectors.narrow(nullptr, static_cast<const float*>(from),
                                call.score_rule.query_factor(query), call.dim, row);
    std::fill(row + call.dim, row + DecodeKernels::query_stride(call.dim), 0.0f);
  }
}

void DecodeWorker::begin(const DecodeTask& task, const DecodeResults& results) {
  const Call& call = task.item.call;
  const Index rows = rows_per_kv_head(call), width = decode_width(call);
  const Index numbers = rows * DecodeKernels::query_stride(call.dim);
  const Index states = task.heads * rows;
  const bool int8 = task.item.keys.multiplies_int8();
  const Index row_bytes = int8 ? int8_query_bytes(call.dim) : 0;
  scratch_.reset(Scratch::bytes_of<float>(task.heads * numbers) +
                 Scratch::bytes_of<std::byte>(states * row_bytes) +
                 Scratch::bytes_of<SoftmaxTile>(task.heads) +
                 Scratch::bytes_of<float>(states * max_lanes) + Scratch::bytes_of<float>(states));
  queries_ = scratch_.allocate<float>(task.heads * numbers);
  int8_queries_ = scratch_.allocate<std::byte>(states * row_bytes);
  states_ = scratch_.allocate<SoftmaxTile>(task.heads);
  float* lane_sums = scratch_.allocate<float>(states * max_lanes);
  float* running_max = scratch_.allocate<float>(states);
  std::fill_n(lane_sums, states * max_lanes, 0.0f);
  std::fill_n(running_max, states, minus_infinity);
  for (Index h = 0; h < task.heads; ++h) {
    float* queries = queries_ + h * numbers;
    load_queries(task.item, task.first_head + h, queries);
    if (int8)
      call.kernels.decode.pack_int8_queries(queries, rows, call.dim,
                                            int8_queries_ + h * rows * row_bytes);
    float* out = results.out + h * results.out_step;
    std::fill_n(out, rows * width, 0.0f);
    states_[h] = {running_max + h * rows,
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
  together_ = results.out_step == rows * width ? max_query_rows / rows : 1;
  // Kernels that shape logits work on whole strips of rows.
  const Index used = std::min(together_, task.heads) * rows;
  std::fill(scores_ + used * tile, scores_ + round_up(used, strip) * tile, 0.0f);
}

/// All heads of the task past one tile: one after the other, in the order of memory, or where only
/// some slots are read as many as fit. A head of few keys alone would wait for the latency of every
/// step.
void DecodeWorker::attend_tile(const DecodeTask& task, Index tile_index, Index next_tile,
                               std::int32_t mask_id) {
  load_mask(task.item.call, mask_id);
  saw_key_ |= mask_sees_;
  const Call& call = task.item.call;
  if (mask_.whole() && !call.score_rule.has_softcap() && !call.score_rule.has_diagonal() &&
      task.item.keys.attend({task.first_head, tile_index, task.first_head, next_tile}, task.heads,
                            rows_per_kv_head(call), {queries_, int8_queries_}, states_))
    return;
  const Index together = seen_ < tile ? together_ : 1;
  for (Index h = 0; h < task.heads; h += together)
    visit(task, {h, std::min(task.heads, h + together)}, tile_index, next_tile);
}

/// One bit word per row: all query heads of the group see what the query sees. The heads of a
/// call share their masks, and short sequences have only one.
void DecodeWorker::load_mask(const Call& call, std::int32_t mask_id) {
  if (&call == mask_call_ && mask_id == mask_id_) return;
  mask_call_ = &call;
  mask_id_ = mask_id;
  seen_ = tile;
  if (mask_id == Visit::whole) {
    mask_.set_whole();
  } else {
    const auto words = call.plan->mask(mask_id);
    for (Index r = 0, query = 0; r < max_query_rows; ++r) {
      words_[r] = element(words, query);
      query = query + 1 < call.queries ? query + 1 : 0;
    }
    std::uint64_t any = 0;
    for (const std::uint64_t word : words_) any |= word;
    seen_ = static_cast<Index>(std::bit_width(any));
    mask_.set_rows(words_, max_query_rows, call.kernels.lanes);
  }
  mask_sees_ = static_cast<std::uint32_t>(mask_.rows_that_see(max_query_rows));
}

void DecodeWorker::add_bias(const Call& call, const KeyTilePlace& place, Index slots,
                            float* scores) const {
  for (Index r = 0; r < rows_per_kv_head(call); ++r) {
    const Index position = call.keys - call.queries + r % call.queries;
    float bias[tile];
    call.score_rule.diagonal_part(place.kv_head * call.group + r / call.queries,
                                  place.key_tile * tile - position, slots, bias);
    float* row = scores + r * tile;
    for (Index c = 0; c < slots; ++c) row[c] += bias[c];
  }
}

void DecodeWorker::visit(const DecodeTask& task, Heads heads, Index key_tile, Index next_tile) {
  const Call& call = task.item.call;
  const StoredKeys& keys = task.item.keys;
  const Index count = rows_per_kv_head(call), all = (heads.end - heads.begin) * count;
  const Index numbers = count * DecodeKernels::query_stride(call.dim);
  const QueryRows rows{count, mask_, seen_, round_up(seen_, call.kernels.lanes)};
  const auto for_each_head = [&](const auto& run) {
    for (Index h = heads.begin; h < heads.end; ++h) {
      const Index head = task.first_head + h;
      const bool last = h + 1 == task.heads;
      const KeyTilePlace place{head, key_tile, last ? task.first_head : head + 1,
                               last ? next_tile : key_tile};
      run(place, h, scores_ + (h - heads.begin) * count * tile);
    }
  };
  for_each_head([&](const KeyTilePlace& place, Index h, float* scores) {
    keys.scores(place, rows, queries_ + h * numbers, scores);
  });
  if (call.score_rule.has_softcap())
    call.kernels.score.softcap(scores_, divide_up(all, strip), mask_.clips(),
                               call.score_rule.softcap_log2(), nullptr);
  if (call.score_rule.has_diagonal()) {
    for_each_head([&](const KeyTilePlace& place, Index, float* scores) {
      add_bias(call, place, rows.slots, scores);
    });
  }
  call.kernels.tiles.online_softmax(scores_, all, mask_.clips(), mask_.words(),
                                    states_[heads.begin]);
  for_each_head([&](const KeyTilePlace& place, Index h, float* scores) {
    keys.accumulate_values(place, rows, scores, states_[h].out);
  });
}

void DecodeWorker::finish(const DecodeTask& task, const DecodeResults& results) const {
  const Call& call = task.item.call;
  for (Index h = 0; h < task.heads; ++h) {
    const SoftmaxTile& state = states_[h];
    DecodePart& part = results.part[h * results.part_step];
    part.saw_key = saw_key_;
    for (Index r = 0; r < rows_per_kv_head(call); ++r) {
      part.running_max[r] = state.running_max[r];
      part.sum[r] = sum_of_lanes(state.lane_sums + r * max_lanes, call.kernels.lanes);
    }
  }
}

}  // namespace rapt::detail
