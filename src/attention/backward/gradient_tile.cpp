#include "attention/backward/gradient_tile.h"

namespace rapt {

GradientScoring::GradientScoring(const Call& call, const BackwardInput& input)
    : call_(call),
      input_(input),
      scoring_(call),
      douts_(call.pairs == nullptr ? tile * call.value_dim : 0),
      left_(call.pairs == nullptr ? 0 : tile * call.pair_depth(call.value_dim)),
      scores_(tile * tile),
      dprobs_(tile * tile),
      tanh_(call.rule.has_softcap() ? tile * tile : 0),
      value_band_(call.relative_values.get(), call.kernels) {}

void GradientScoring::take_queries(Index item, Index head, Index query_tile) {
  item_ = item;
  head_ = head;
  query_tile_ = query_tile;
  first_row_ = call_.row(item, head, query_tile * tile);
  scoring_.take_queries(item, head, query_tile);
  value_band_.begin();
  const InputRows dout = call_.query_rows(input_.dout, item, head, query_tile);
  if (call_.pairs == nullptr) {
    call_.kernels.pack_strips(dout, call_.value_dim, output_factors(), douts_.data());
  } else {
    call_.pairs->pack_left(dout, call_.value_dim, call_.pair_depth(call_.value_dim), left_.data());
  }
}

/// dprobs = dout · values
void GradientScoring::multiply(RightTile values) {
  if (call_.pairs == nullptr) {
    call_.kernels.scores(douts_.data(), values.panels, call_.value_dim, row_strips(),
                         mask().clips(), dprobs_.data());
  } else {
    call_.pairs->scores(left_.data(), call_.pair_depth(call_.value_dim), values.pairs, rows(),
                        mask().clips(), dprobs_.data());
  }
}

void GradientScoring::differentiate(RightTile keys, RightTile values, Index key_tile,
                                    std::int32_t mask_id) {
  const Kernels& kernels = call_.kernels;
  scoring_.logits(keys, key_tile, mask_id, scores_.data(), tanh_.data());
  multiply(values);
  value_band_.add(douts_.data(), rows(), call_.distance(query_tile_, key_tile), mask().clips(),
                  dprobs_.data());
  const bool drop = call_.rule.has_dropout();
  const DropTile how =
      drop ? call_.rule.drop_tile(item_ * call_.heads + head_, query_tile_, key_tile) : DropTile{};
  if (drop) kernels.drop(dprobs_.data(), rows(), how);
  const GradientTile state{input_.reference.data() + first_row_, input_.delta.data() + first_row_};
  (call_.pairs == nullptr ? kernels.differentiate : call_.pairs->differentiate_logits)(
      scores_.data(), dprobs_.data(), rows(), mask().words(), state);
  if (drop) kernels.drop(scores_.data(), rows(), how);
  scoring_.clear_self(dprobs_.data());
}

PairGradientVisit GradientScoring::pair_visit() {
  return {.queries = scoring_.left(),
          .douts = left_.data(),
          .depth = call_.pair_depth(call_.dim),
          .value_depth = call_.pair_depth(call_.value_dim),
          .keys = nullptr,
          .values = nullptr,
          .key_rows = nullptr,
          .width = 0,
          .rows = rows(),
          .masks = mask().words(),
          .factors = scoring_.narrow_factors(),
          .query_scales = nullptr,
          .state = {input_.reference.data() + first_row_, input_.delta.data() + first_row_},
          .scores = scores_.data(),
          .dprobs = dprobs_.data(),
          .left = nullptr,
          .probability_pairs = nullptr,
          .dlogit_pairs = nullptr,
          .dqueries = nullptr};
}

void GradientScoring::uncap() {
  if (call_.rule.has_softcap()) call_.kernels.uncap(dprobs_.data(), tanh_.data(), rows());
}

}  // namespace rapt
