#pragma once

#include "attention/call.h"
#include "attention/lsh_order.h"
#include "attention/packed.h"

namespace rapt {

/// Sorted rows lie anywhere; what will be read a few rows later is asked for now.
inline constexpr Index rows_ahead = 8;
inline void prefetch_row(const void* row, Index bytes) {
  for (Index line = 0; line < bytes; line += 64)
    __builtin_prefetch(static_cast<const char*>(row) + line);
}

/// [1, 1, slots, numbers] of f32, one after the other.
inline AnyView slot_view(const Buffer<float>& numbers, Index width) {
  const Index slots = numbers.size() / width;
  return AnyView::trusted(numbers.data(), Type::f32, {1, 1, slots, width},
                          {numbers.size(), numbers.size(), width, 1});
}

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
  Index item() const { return owner_ / heads(); }
  Index head() const { return owner_ % heads(); }
  bool shared_keys() const { return lsh_.keys == Lsh::Keys::shared; }

  /// Sorts the queries of one head; its keys and values lie in `keys()`.
  void take(Index item, Index head);
  /// Sorts keys and values as well: backward reads them again and again.
  void take_keys();
  /// The call of the head taken last: one head of slots() tokens.
  const Call& call() const { return *call_; }
  KeySource& keys() { return keys_; }
  const std::int32_t* query_positions() const { return order_->queries(owner_); }
  const std::int32_t* key_positions() const { return order_->keys(owner_); }
  /// What keys are multiplied with, by position: the inverse root mean square, or 1.
  double key_factor(Index position) const { return key_factors_[position]; }

  /// Rows of the head taken last in sorted order, as f32; zeros where a slot holds no token.
  void gather(const AnyView& from, const std::int32_t* positions, const double* factors,
              float* to) const;

 private:
  /// Packs tiles of keys and values straight from where they lie.
  class SlotKeys : public KeySource {
   public:
    explicit SlotKeys(const LshCall& lsh) : lsh_(lsh) {}
    PackedTile get(Index item, Index kv_head, Index key_tile, float* room) override;

   private:
    const LshCall& lsh_;
  };

  void find_key_factors();
  void gather_rows(const AnyView& from, const std::int32_t* positions, Index count,
                   const double* factors, float* to) const;
  const double* key_factors() const { return shared_keys() ? key_factors_.data() : nullptr; }

  AnyView q_, k_, v_;
  const Context& context_;
  Lsh lsh_;
  PositionRanges ranges_;
  std::shared_ptr<const LshOrder> order_;
  Attention slot_how_;
  std::uint64_t seed_;  // of dropout, which is another one for each head
  SlotRule slot_rule_;
  Index owner_ = 0;
  Buffer<double> key_factors_;
  Buffer<float> slot_q_, slot_k_, slot_v_;
  std::unique_ptr<Call> call_;
  SlotKeys keys_;
};

}  // namespace rapt
