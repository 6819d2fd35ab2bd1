#include "attention/score/tile_logits.h"

#include <algorithm>
#include <bit>
#include <type_traits>

namespace rapt::detail {

template <class T>
TileLogits<T>::TileLogits(const Call& call)
    : call_(call),
      tiles_(tile_kernels<T>(call.kernels)),
      depth_(packed_depth<T>(call.kernels, call.dim)),
      queries_(tile * depth_),
      factors_(tile),
      f32_factors_(std::is_same_v<T, Bf16> ? tile : 0),
      band_(call.relative.get(), call.kernels) {
  if (call.score_rule.has_dense()) dense_ = Buffer<float>(tile * tile);
  if (call.score_rule.has_dense() || call.sorted_rule != nullptr)
    own_mask_ = Buffer<std::uint64_t>(tile);
  if (call.sorted_rule != nullptr) self_ = Buffer<std::uint64_t>(tile);
}

template <>
void TileLogits<float>::pack_queries(const InputRows& rows) {
  tiles_.pack_strips(rows, call_.dim, factors_.data(), queries_.data());
}

template <>
void TileLogits<Bf16>::pack_queries(const InputRows& rows) {
  tiles_.pack_strips(rows, call_.dim, depth_, queries_.data());
  std::transform(factors_.begin(), factors_.begin() + rows_, f32_factors_.begin(),
                 [](double x) { return static_cast<float>(x); });
  const ScoreRule& rule = call_.score_rule;
  plain_ = call_.sorted_rule == nullptr && !rule.has_softcap() && !rule.has_diagonal() &&
           !rule.has_dense() &&
           std::all_of(f32_factors_.begin(), f32_factors_.begin() + rows_,
                       [](float x) { return x > 0; });
}

template <class T>
void TileLogits<T>::load_queries(Index item, Index head, Index query_tile) {
  item_ = item;
  head_ = head;
  query_tile_ = query_tile;
  rows_ = call_.tile_rows(query_tile);
  for (Index r = 0; r < rows_; ++r)
    factors_[r] = call_.score_rule.query_factor(query_tile * tile + r);
  band_.begin();
  pack_queries(call_.query_rows(call_.q, item, head, query_tile));
}

/// The mask so far, to be written to.
template <class T>
void TileLogits<T>::copy_mask() {
  if (mask_.words() == own_mask_.data()) return;
  if (mask_.whole()) {
    std::fill(own_mask_.begin(), own_mask_.end(), std::uint64_t{0});
    std::fill_n(own_mask_.begin(), rows_, ~std::uint64_t{0});
  } else {
    std::copy_n(mask_.words(), tile, own_mask_.data());
  }
}

template <class T>
void TileLogits<T>::set_mask() {
  mask_.set(std::span<const std::uint64_t, tile>(own_mask_.data(), tile), call_.kernels.lanes);
}

/// The plan's mask, without the keys that a dense bias or the order of sorted tokens hides.
template <class T>
void TileLogits<T>::load_mask(Index key_tile, std::int32_t mask_id) {
  if (mask_id == Visit::whole) {
    mask_.set_whole();
  } else {
    mask_.set(call_.plan->mask(mask_id), call_.kernels.lanes);
  }
  if (call_.score_rule.has_dense()) {
    copy_mask();
    if (call_.score_rule.dense_tile(item_, head_, call_.whole_query_tile(query_tile_),
                                    call_.whole_key_tile(key_tile), dense_.data(),
                                    own_mask_.data()))
      set_mask();
  }
  if (call_.sorted_rule == nullptr) return;
  copy_mask();
  if (call_.sorted_rule->restrict(query_tile_, key_tile, rows_, own_mask_.data(), self_.data()))
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

template <class T>
void TileLogits<T>::rewrite_self(float* scores) const {
  if (any_self_) set_under(self_, SortedRule::self_logit, scores);
}

template <class T>
void TileLogits<T>::clear_self(float* dlogits) const {
  if (any_self_) set_under(self_, 0, dlogits);
}

template <class T>
void TileLogits<T>::products(const T* keys, float* scores) {
  if constexpr (std::is_same_v<T, Bf16>) {
    tiles_.scores(queries_.data(), depth_, keys, rows_, mask_.clips(), scores);
  } else {
    tiles_.scores(queries_.data(), keys, depth_, row_strips(), mask_.clips(), scores);
  }
}

/// bf16 is multiplied by the factors only now: a query times its factor is no bf16.
template <class T>
void TileLogits<T>::multiply(const T* keys, float* scores) {
  products(keys, scores);
  if constexpr (std::is_same_v<T, Bf16>)
    tiles_.scale(scores, rows_, mask_.clips(), f32_factors_.data());
}

template <class T>
void TileLogits<T>::logits(const T* keys, Index key_tile, std::int32_t mask_id, float* scores,
                           float* tanh_out) {
  load_mask(key_tile, mask_id);
  const ScoreKernels& kernels = call_.kernels.score;
  const ScoreRule& rule = call_.score_rule;
  const Clip* clips = mask_.clips();
  const Index count = row_strips();
  const Index distance = call_.distance(query_tile_, key_tile);
  multiply(keys, scores);
  if constexpr (std::is_same_v<T, float>)
    band_.add(queries_.data(), rows_, distance, clips, scores);
  if (rule.has_softcap()) kernels.softcap(scores, count, clips, rule.softcap_log2(), tanh_out);
  if (rule.has_diagonal())
    kernels.add_diagonal(scores, count, clips, rule.diagonal(head_) - distance);
  if (rule.has_dense()) kernels.add_tile(scores, count, clips, dense_.data());
  if (call_.sorted_rule == nullptr) return;
  rewrite_self(scores);
  if (call_.sorted_rule->weights().needed())
    call_.sorted_rule->weights().add(query_tile_, key_tile, own_mask_.data(), scores);
}

template class TileLogits<float>;
template class TileLogits<Bf16>;

}  // namespace rapt::detail
