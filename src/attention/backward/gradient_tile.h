#pragma once

#include "attention/backward/backward.h"
#include "attention/score/tile_logits.h"

namespace rapt {

/// Recomputes the probabilities of a tile and differentiates them: what both backward passes start
/// with.
class GradientScoring {
 public:
  GradientScoring(const Call& call, const BackwardInput& input);

  /// Packs queries and output gradients of a tile.
  void take_queries(Index item, Index head, Index query_tile);

  /// Fills probabilities() (after dropout) and dlogits() for one key tile; zeros where mask()
  /// hides.
  void differentiate(RightTile keys, RightTile values, Index key_tile, std::int32_t mask_id);
  const TileMask& mask() const { return scoring_.mask(); }
  void take_mask(Index key_tile, std::int32_t mask_id) { scoring_.take_mask(key_tile, mask_id); }
  /// Whether pair kernels can go from products to gradients of logits by themselves, and what this
  /// tile of queries gives them for it after take_mask.
  bool is_plain() const { return scoring_.is_plain() && !call_.rule.has_dropout(); }
  PairGradientVisit pair_visit();
  /// Turns dlogits() into gradients of scale * q·k.
  void uncap();

  Index rows() const { return scoring_.rows(); }
  Index row_strips() const { return scoring_.row_strips(); }
  float* probabilities() { return scores_.data(); }
  float* dlogits() { return dprobs_.data(); }
  const double* factors() const { return scoring_.factors(); }
  const double* output_factors() const { return input_.inverse_sum.data() + first_row_; }

 private:
  void multiply(RightTile values);

  const Call& call_;
  const BackwardInput& input_;
  Scoring scoring_;
  Index item_ = 0, head_ = 0, query_tile_ = 0, first_row_ = 0;
  Buffer<float> douts_;  // strips, divided by the denominators
  Buffer<Bf16> left_;    // the same for pair products, as they are
  Buffer<float> scores_, dprobs_, tanh_;
  TableBand value_band_;  // dout · relative value
};

}  // namespace rapt
