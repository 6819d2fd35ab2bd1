#pragma once

#include <cstdlib>

#include "attention/call.h"
#include "attention/forward/packed_keys.h"
#include "attention/lsh/lsh_order.h"

namespace rapt::detail {

/// A checked call with an lsh leaf, and the same call as one head sees it in sorted order. Operands
/// are read where they are, and results of all rounds are added up where they belong.
class LshCall {
 public:
  /// Plans a validated request over operands. `order` is what forward kept; null: tokens are hashed
  /// and sorted now.
  LshCall(const Request& request, std::shared_ptr<const LshOrder> order);
  /// The same call for another thread, with what does not depend on the head in common.
  LshCall(const LshCall& other, const Context& context);

  Index batch() const { return q_.batch(); }
  Index heads() const { return q_.heads(); }
  Index tokens() const { return q_.tokens(); }
  Index dim() const { return q_.dim(); }
  Index value_dim() const { return v_.dim(); }
  Index sorted_count() const { return order().sorted_count(); }
  const LshOrder& order() const { return *common_->order; }
  const std::shared_ptr<const LshOrder>& shared_order() const { return common_->order; }
  const Context& context() const { return context_; }
  const Kernels& kernels() const { return kernels_of(context_); }
  Index item() const { return batch_head_ / heads(); }
  Index head() const { return batch_head_ % heads(); }
  bool shared_keys() const { return common_->lsh.keys == Lsh::Keys::shared; }

  /// Whether denominators are rounded where Transformers rounds them.
  bool rounds_denominators() const {
    return shared_keys() && common_->lsh.duplicates == Lsh::Duplicates::keep;
  }

  void load_head(Index item, Index head);
  /// The call of the head loaded last: one head of sorted_count() tokens.
  const Call& call() const { return *call_; }
  KeySource<float>& keys() { return keys_; }
  /// What shared keys are multiplied with, by position: the inverse root mean square.
  double key_factor(Index position) const { return key_factors_[position]; }

  /// The head loaded last of any operand.
  AnyView head_of(const AnyView& operand) const;
  /// The same with contiguous rows, in `scratch` if they are apart: sorted tokens are then on few
  /// pages and in all sets of the caches.
  AnyView contiguous_rows(const AnyView& operand, Buffer<float>& scratch) const;

 private:
  struct Common {
    Lsh lsh;
    PositionRanges ranges;
    std::shared_ptr<const LshOrder> order;
    Attention how;  // of sorted tokens; its dropout has another seed for each head
  };
  static std::shared_ptr<const Common> common_of(const Request& request,
                                                 std::shared_ptr<const LshOrder> order);
  LshCall(AnyView q, AnyView k, AnyView v, const Context& context,
          std::shared_ptr<const Common> common);

  /// Packs tiles of keys and values from the caller's memory.
  class SortedKeys : public KeySource<float> {
   public:
    explicit SortedKeys(const LshCall& lsh) : lsh_(lsh) {}
    PackedTile<float> get(Index item, Index kv_head, Index key_tile, float* scratch) override;
    void prefetch(Index item, Index kv_head, Index key_tile) override;

   private:
    const LshCall& lsh_;
  };

  AnyView head_keys();
  void find_key_factors();

  AnyView q_, k_, v_;
  const Context& context_;
  std::shared_ptr<const Common> common_;
  Attention sorted_how_;
  SortedRule sorted_rule_;
  Index batch_head_ = 0;
  Buffer<double> key_factors_,
      sorted_factors_;  // by token, by sorted index; empty if keys are separate
  Buffer<float> query_scratch_, key_scratch_, value_scratch_;  // of rows that are apart
  TokenOrder query_order_{}, key_order_{};
  std::unique_ptr<Call> call_;
  SortedKeys keys_;
};

/// Whether a head's rows follow each other without a gap, or with so few that it does not matter.
/// Rows of interleaved heads are in a few sets of the caches, where they evict each other.
template <class View>
bool rows_are_contiguous(const View& view) {
  constexpr Index small_bytes = Index{256} << 10;
  const Index stride = std::abs(view.stride(2));
  return stride == view.dim() ||
         view.tokens() * stride * static_cast<Index>(size_of(view.type())) <= small_bytes;
}

/// Whether results of several rounds can be added up where they belong.
inline bool adds_in_place(const AnyMutableView& out) {
  return out.type() == Type::f32 && rows_are_contiguous(out);
}

}  // namespace rapt::detail
