#pragma once

#include "attention/backward/backward.h"
#include "attention/score/tile_logits.h"

namespace rapt::detail {

/// Recomputes the probabilities of a tile and differentiates them: what both backward passes start
/// with. Products multiply numbers of type T.
template <class T>
class GradientTile {
 public:
  GradientTile(const Call& call, const BackwardInput& input);

  /// Packs queries and output gradients of a tile.
  void load_queries(Index item, Index head, Index query_tile);

  /// Fills probabilities() (after dropout) and dlogits() for one key tile; zeros where mask()
  /// hides. `keys` and `values` are panels.
  void differentiate(const T* keys, const T* values, Index key_tile, std::int32_t mask_id);
  const TileMask& mask() const { return logits_.mask(); }
  void load_mask(Index key_tile, std::int32_t mask_id) { logits_.load_mask(key_tile, mask_id); }
  /// Whether bf16 kernels can go from products to gradients of logits by themselves, and what this
  /// tile of queries gives them for it after load_mask.
  bool is_plain() const { return logits_.is_plain() && !call_.score_rule.has_dropout(); }
  Bf16BackwardTile fused_tile();
  /// Makes gradients of scale * q·k of dlogits().
  void softcap_backward();

  Index rows() const { return logits_.rows(); }
  Index row_strips() const { return logits_.row_strips(); }
  float* probabilities() { return scores_.data(); }
  float* dlogits() { return dprobs_.data(); }
  const double* factors() const { return logits_.factors(); }
  const double* output_factors() const { return input_.inverse_sum.data() + first_row_; }

 private:
  void multiply(const T* values);
  SoftmaxGradient softmax() const {
    return {input_.running_max.data() + first_row_, input_.delta.data() + first_row_};
  }

  const Call& call_;
  const BackwardInput& input_;
  const TileKernels<T>& tiles_;
  TileLogits<T> logits_;
  Index value_depth_;
  Index item_ = 0, head_ = 0, query_tile_ = 0, first_row_ = 0;
  Buffer<T> douts_;  // strips; f32 divided by the denominators, bf16 as they are
  Buffer<float> scores_, dprobs_, tanh_;
  TableBand value_band_;  // dout · relative value
};

template <>
Bf16BackwardTile GradientTile<Bf16>::fused_tile();

}  // namespace rapt::detail
