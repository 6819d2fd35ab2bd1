#pragma once

#include <cstdlib>

#include "attention/call.h"
#include "attention/forward/packed_keys.h"
#include "attention/lsh/lsh_order.h"

namespace rapt {

/// A checked call with an lsh leaf, and the same call as one head sees it in sorted order. Operands
/// are read where they lie, and results of all rounds are added up where they belong.
class LshCall {
 public:
  /// Of a validated request over operands. `order` is what forward kept; null: tokens are hashed
  /// and sorted now.
  LshCall(const Request& request, std::shared_ptr<const LshOrder> order);
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

  /// Whether denominators are to be rounded where Transformers' are.
  bool rounds_denominators() const {
    return shared_keys() && common_->lsh.duplicates == Lsh::Duplicates::keep;
  }

  void take(Index item, Index head);
  /// The call of the head taken last: one head of slots() tokens.
  const Call& call() const { return *call_; }
  KeySource& keys() { return keys_; }
  /// What shared keys are multiplied with, by position: the inverse root mean square.
  double key_factor(Index position) const { return key_factors_[position]; }

  /// The head taken last of any operand.
  AnyView head_of(const AnyView& operand) const;
  /// The same with its rows one after the other, in `room` if they lie apart: sorted tokens are
  /// then found on few pages and in all sets of the caches.
  AnyView close_rows(const AnyView& operand, Buffer<float>& room) const;

 private:
  struct Common {
    Lsh lsh;
    PositionRanges ranges;
    std::shared_ptr<const LshOrder> order;
    Attention how;  // of slots; its dropout has another seed for each head
  };
  static std::shared_ptr<const Common> common_of(const Request& request,
                                                 std::shared_ptr<const LshOrder> order);
  LshCall(AnyView q, AnyView k, AnyView v, const Context& context,
          std::shared_ptr<const Common> common);

  /// Packs tiles of keys and values straight from where they lie.
  class SlotKeys : public KeySource {
   public:
    explicit SlotKeys(const LshCall& lsh) : lsh_(lsh) {}
    PackedTile get(Index item, Index kv_head, Index key_tile, float* room) override;
    void expect(Index item, Index kv_head, Index key_tile) override;

   private:
    const LshCall& lsh_;
  };

  AnyView head_keys();
  void find_key_factors();

  AnyView q_, k_, v_;
  const Context& context_;
  std::shared_ptr<const Common> common_;
  Attention slot_how_;
  SlotRule slot_rule_;
  Index owner_ = 0;
  Buffer<double> key_factors_, slot_factors_;  // by token, by slot; empty if keys are kept apart
  Buffer<float> query_room_, key_room_, value_room_;  // of rows that lie apart
  TokenOrder query_order_{}, key_order_{};
  std::unique_ptr<Call> call_;
  SlotKeys keys_;
};

/// Whether a head's rows follow each other without a gap, or with so few that it does not matter.
/// Heads beside each other have their rows in a few sets of the caches, where they push each other
/// out.
template <class View>
bool rows_are_close(const View& view) {
  constexpr Index few_bytes = Index{256} << 10;
  const Index stride = std::abs(view.stride(2));
  return stride == view.dim() ||
         view.tokens() * stride * static_cast<Index>(size_of(view.type())) <= few_bytes;
}

/// Whether results of several rounds can be added up where they belong.
inline bool adds_in_place(const AnyMutableView& out) {
  return out.type() == Type::f32 && rows_are_close(out);
}

}  // namespace rapt
