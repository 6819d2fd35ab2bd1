#include "attention/score/tile_logits.h"

#include <algorithm>
#include <bit>

namespace rapt {

Scoring::Scoring(const Call& call)
    : call_(call),
      queries_(call.pairs == nullptr ? tile * call.dim : 0),
      left_(call.pairs == nullptr ? 0 : tile * call.pair_depth(call.dim)),
      narrow_factors_(call.pairs == nullptr ? 0 : tile),
      factors_(tile),
      band_(call.relative.get(), call.kernels) {
  if (call.rule.has_dense()) dense_ = Buffer<float>(tile * tile);
  if (call.rule.has_dense() || call.slots != nullptr) open_mask_ = Buffer<std::uint64_t>(tile);
  if (call.slots != nullptr) {
    self_ = Buffer<std::uint64_t>(tile);
  }
}

void Scoring::take_queries(Index item, Index head, Index query_tile) {
  item_ = item;
  head_ = head;
  query_tile_ = query_tile;
  rows_ = call_.tile_rows(query_tile);
  for (Index r = 0; r < rows_; ++r) factors_[r] = call_.rule.query_factor(query_tile * tile + r);
  band_.begin();
  const InputRows rows = call_.query_rows(call_.q, item, head, query_tile);
  if (call_.pairs == nullptr) {
    call_.kernels.pack_strips(rows, call_.dim, factors_.data(), queries_.data());
    return;
  }
  call_.pairs->pack_left(rows, call_.dim, call_.pair_depth(call_.dim), left_.data());
  std::transform(factors_.begin(), factors_.begin() + rows_, narrow_factors_.begin(),
                 [](double x) { return static_cast<float>(x); });
  plain_ = call_.slots == nullptr && !call_.rule.has_softcap() && !call_.rule.has_diagonal() &&
           !call_.rule.has_dense() &&
           std::all_of(narrow_factors_.begin(), narrow_factors_.begin() + rows_,
                       [](float x) { return x > 0; });
}

/// The mask so far, to be written to.
void Scoring::open_mask() {
  if (mask_.words() == open_mask_.data()) return;
  if (mask_.whole()) {
    std::fill(open_mask_.begin(), open_mask_.end(), std::uint64_t{0});
    std::fill_n(open_mask_.begin(), rows_, ~std::uint64_t{0});
  } else {
    std::copy_n(mask_.words(), tile, open_mask_.data());
  }
}

void Scoring::set_mask() {
  mask_.set(std::span<const std::uint64_t, tile>(open_mask_.data(), static_cast<std::size_t>(tile)),
            call_.kernels.lanes);
}

/// The plan's mask, without the pairs that a dense bias or the order of sorted tokens hides.
void Scoring::take_mask(Index key_tile, std::int32_t mask_id) {
  if (mask_id == Visit::whole) {
    mask_.set_whole();
  } else {
    mask_.set(call_.plan->mask(mask_id), call_.kernels.lanes);
  }
  if (call_.rule.has_dense()) {
    open_mask();
    if (call_.rule.dense_tile(item_, head_, query_tile_, key_tile, dense_.data(),
                              open_mask_.data()))
      set_mask();
  }
  if (call_.slots == nullptr) return;
  open_mask();
  if (call_.slots->restrict(query_tile_, key_tile, rows_, open_mask_.data(), self_.data()))
    set_mask();
  any_self_ = std::any_of(self_.begin(), self_.end(), [](std::uint64_t word) { return word != 0; });
}

namespace {

/// Sets the numbers [64][64] under the bits.
void set_under(const Buffer<std::uint64_t>& words, float number, float* numbers) {
  for (Index r = 0; r < tile; ++r) {
    for (std::uint64_t word = words[r]; word != 0; word &= word - 1)
      numbers[r * tile + std::countr_zero(word)] = number;
  }
}

}  // namespace

void Scoring::rewrite_self(float* scores) const {
  if (any_self_) set_under(self_, SlotRule::self_logit, scores);
}

void Scoring::clear_self(float* dlogits) const {
  if (any_self_) set_under(self_, 0, dlogits);
}

void Scoring::products(RightTile keys, float* scores) {
  call_.pairs->scores(left_.data(), call_.pair_depth(call_.dim), keys.pairs, rows_, mask_.clips(),
                      scores);
}

/// Pairs are multiplied by the factors only now: a query times its factor is no bf16.
void Scoring::multiply(RightTile keys, float* scores) {
  if (call_.pairs == nullptr) {
    call_.kernels.scores(queries_.data(), keys.panels, call_.dim, row_strips(), mask_.clips(),
                         scores);
    return;
  }
  products(keys, scores);
  call_.pairs->scale(scores, rows_, mask_.clips(), narrow_factors_.data());
}

void Scoring::logits(RightTile keys, Index key_tile, std::int32_t mask_id, float* scores,
                     float* tanh_out) {
  take_mask(key_tile, mask_id);
  const Kernels& kernels = call_.kernels;
  const Rule& rule = call_.rule;
  const Clip* clips = mask_.clips();
  const Index count = row_strips();
  const Index distance = call_.distance(query_tile_, key_tile);
  multiply(keys, scores);
  band_.add(queries_.data(), rows_, distance, clips, scores);
  if (rule.has_softcap()) kernels.softcap(scores, count, clips, rule.softcap_log2(), tanh_out);
  if (rule.has_diagonal())
    kernels.add_diagonal(scores, count, clips, rule.diagonal(head_) - distance);
  if (rule.has_dense()) kernels.add_tile(scores, count, clips, dense_.data());
  if (call_.slots == nullptr) return;
  rewrite_self(scores);
  if (call_.slots->weights().needed())
    call_.slots->weights().add(query_tile_, key_tile, open_mask_.data(), scores);
}

}  // namespace rapt
