#include "attention/backward/gradient_tile.h"

#include <type_traits>

namespace rapt::detail {

template <class T>
GradientTile<T>::GradientTile(const Call& call, const BackwardInput& input)
    : call_(call),
      input_(input),
      tiles_(tile_kernels<T>(call.kernels)),
      logits_(call),
      value_depth_(packed_depth<T>(call.kernels, call.value_dim)),
      douts_(tile * value_depth_),
      scores_(tile * tile),
      dprobs_(tile * tile),
      tanh_(call.score_rule.has_softcap() ? tile * tile : 0),
      value_band_(call.relative_values.get(), call.kernels) {}

template <class T>
void GradientTile<T>::load_queries(Index item, Index head, Index query_tile) {
  item_ = item;
  head_ = head;
  query_tile_ = query_tile;
  first_row_ = call_.row(item, head, query_tile * tile);
  logits_.load_queries(item, head, query_tile);
  value_band_.begin();
  const InputRows dout = call_.query_rows(input_.dout, item, head, query_tile);
  if constexpr (std::is_same_v<T, Bf16>) {
    tiles_.pack_strips(dout, call_.value_dim, value_depth_, douts_.data());
  } else {
    tiles_.pack_strips(dout, call_.value_dim, output_factors(), douts_.data());
  }
}

/// dprobs = dout · values
template <class T>
void GradientTile<T>::multiply(const T* values) {
  if constexpr (std::is_same_v<T, Bf16>) {
    tiles_.scores(douts_.data(), value_depth_, values, rows(), mask().clips(), dprobs_.data());
  } else {
    tiles_.scores(douts_.data(), values, value_depth_, row_strips(), mask().clips(),
                  dprobs_.data());
  }
}

template <class T>
void GradientTile<T>::differentiate(const T* keys, const T* values, Index key_tile,
                                    std::int32_t mask_id) {
  const ScoreKernels& kernels = call_.kernels.score;
  logits_.logits(keys, key_tile, mask_id, scores_.data(), tanh_.data());
  multiply(values);
  if constexpr (std::is_same_v<T, float>)
    value_band_.add(douts_.data(), rows(), call_.distance(query_tile_, key_tile), mask().clips(),
                    dprobs_.data());
  const bool drop = call_.score_rule.has_dropout();
  const DropoutTile how = drop ? call_.score_rule.dropout_tile(item_ * call_.heads + head_,
                                                               call_.whole_query_tile(query_tile_),
                                                               call_.whole_key_tile(key_tile))
                               : DropoutTile{};
  if (drop) kernels.dropout(dprobs_.data(), rows(), how);
  tiles_.softmax_backward(scores_.data(), dprobs_.data(), rows(), mask().words(), softmax());
  if (drop) kernels.dropout(scores_.data(), rows(), how);
  logits_.clear_self(dprobs_.data());
}

template <>
Bf16BackwardTile GradientTile<Bf16>::fused_tile() {
  return {.queries = logits_.queries(),
          .douts = douts_.data(),
          .depth = logits_.depth(),
          .value_depth = value_depth_,
          .keys = nullptr,
          .values = nullptr,
          .key_rows = nullptr,
          .width = 0,
          .rows = rows(),
          .masks = mask().words(),
          .factors = logits_.f32_factors(),
          .query_scales = nullptr,
          .state = softmax(),
          .scores = scores_.data(),
          .dprobs = dprobs_.data(),
          .dlogit_strips = nullptr,
          .probabilities = nullptr,
          .dlogits = nullptr,
          .dqueries = nullptr};
}

template <class T>
void GradientTile<T>::softcap_backward() {
  if (call_.score_rule.has_softcap())
    call_.kernels.score.softcap_backward(dprobs_.data(), tanh_.data(), rows());
}

template class GradientTile<float>;
template class GradientTile<Bf16>;

}  // namespace rapt::detail
