#pragma once

#include "attention/call.h"
#include "attention/lsh_order.h"

namespace rapt {

/// A checked call with an lsh leaf, and the same call as one head sees it in sorted order.
class LshCall {
 public:
  /// `order` is what forward kept; null: tokens are hashed and sorted now.
  LshCall(const char* where, AnyView q, AnyView k, AnyView v, const Attention& how,
          const Context& context, std::shared_ptr<const LshOrder> order);

  Index batch() const { return q_.batch(); }
  Index heads() const { return q_.heads(); }
  Index tokens() const { return q_.tokens(); }
  Index dim() const { return q_.dim(); }
  Index value_dim() const { return v_.dim(); }
  Index slots() const { return order_->slots(); }
  const LshOrder& order() const { return *order_; }
  const std::shared_ptr<const LshOrder>& shared_order() const { return order_; }
  const Context& context() const { return context_; }
  const Kernels& kernels() const { return kernels_of(context_); }
  bool shared_keys() const { return lsh_.keys == Lsh::Keys::shared; }

  /// Sorts the operands of one head.
  void take(Index item, Index head);
  /// The call of the head taken last: one head of slots() tokens.
  const Call& call() const { return *call_; }
  const std::int32_t* query_positions() const { return order_->queries(owner_); }
  const std::int32_t* key_positions() const { return order_->keys(owner_); }
  /// What keys are multiplied with, by position: the inverse root mean square, or 1.
  double key_factor(Index position) const { return key_factors_[position]; }

  /// Rows of one head in sorted order, as f32; zeros where a slot holds no token.
  void gather(const AnyView& from, Index item, Index head, const std::int32_t* positions,
              const double* factors, Tensor& to) const;

 private:
  void find_key_factors(Index item, Index head);

  AnyView q_, k_, v_;
  const Context& context_;
  Lsh lsh_;
  PositionRanges ranges_;
  std::shared_ptr<const LshOrder> order_;
  Attention slot_how_;
  SlotRule slot_rule_;
  Index owner_ = 0;
  Buffer<double> key_factors_;
  Tensor slot_q_, slot_k_, slot_v_;
  std::unique_ptr<Call> call_;
};

}  // namespace rapt
