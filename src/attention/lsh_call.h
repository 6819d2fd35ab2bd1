#pragma once

#include "attention/call.h"
#include "attention/lsh_order.h"
#include "attention/packed.h"

namespace rapt {

/// Sorted rows lie anywhere; what will be read a few rows later is asked for now.
inline constexpr Index slots_ahead = 8;
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
  /// The same call for another thread, with what does not depend on the head in common.
  LshCall(const LshCall& other, const Context& context);

  Index batch() const { return q_.batch(); }
  Index heads() const { return q_.heads(); }
  Index tokens() const { return q_.tokens(); }
  Index dim() const { return q_.dim(); }
  Index value_dim() const { return v_.dim(); }
  Index slots() const { return order().slots(); }
  const LshOrder& order() const { return *common_->order; }
  const std::shared_ptr<const LshOrder>& shared_order() const { return common_->order; }
  const Context& context() const { return context_; }
  const Kernels& kernels() const { return kernels_of(context_); }
  Index item() const { return owner_ / heads(); }
  Index head() const { return owner_ % heads(); }
  bool shared_keys() const { return common_->lsh.keys == Lsh::Keys::shared; }

  /// One head, its queries and keys read in sorted order where they lie.
  void take(Index item, Index head);
  /// Copies its queries, keys and values in that order: backward reads them again and again.
  void sort_operands();
  /// The call of the head taken last: one head of slots() tokens.
  const Call& call() const { return *call_; }
  KeySource& keys() { return keys_; }
  const std::int32_t* query_positions() const { return order().queries(owner_); }
  const std::int32_t* key_positions() const { return order().keys(owner_); }
  /// What keys are multiplied with, by position: the inverse root mean square, or 1.
  double key_factor(Index position) const { return key_factors_[position]; }

  /// The head taken last of any operand.
  AnyView head_of(const AnyView& operand) const;
  /// Rows of a head in sorted order, as f32; zeros where a slot holds no token.
  void gather(const AnyView& head, const std::int32_t* positions, float* to) const;

 private:
  struct Common {
    Lsh lsh;
    PositionRanges ranges;
    std::shared_ptr<const LshOrder> order;
    Attention how;  // of slots; its dropout has another seed for each head
  };
  static std::shared_ptr<const Common> common_of(const char* where, const AnyView& q,
                                                 const AnyView& k, const AnyView& v,
                                                 const Attention& how, const Context& context,
                                                 std::shared_ptr<const LshOrder> order);
  LshCall(AnyView q, AnyView k, AnyView v, const Context& context,
          std::shared_ptr<const Common> common);

  /// Packs tiles of keys and values straight from where they lie.
  class SlotKeys : public KeySource {
   public:
    explicit SlotKeys(const LshCall& lsh) : lsh_(lsh) {}
    PackedTile get(Index item, Index kv_head, Index key_tile, float* room) override;

   private:
    const LshCall& lsh_;
  };

  void normalize_keys();
  AnyView head_keys() const;

  AnyView q_, k_, v_;
  const Context& context_;
  std::shared_ptr<const Common> common_;
  Attention slot_how_;
  SlotRule slot_rule_;
  Index owner_ = 0;
  Buffer<double> key_factors_;
  Buffer<float> normalized_;  // [tokens][dim]: keys times their factors; empty if kept apart
  Buffer<float> slot_q_, slot_k_, slot_v_;
  std::unique_ptr<Call> call_;
  SlotKeys keys_;
};

}  // namespace rapt
