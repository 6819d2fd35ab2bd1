#pragma once

#include <vector>

#include "attention/lsh/lsh_places.h"
#include "base/buffer.h"
#include "kernels/context.h"
#include "rapt/attention.h"
#include "rapt/lsh.h"

namespace rapt {

/// How the tokens of every (batch item, head) are sorted: round after round, by bucket and then by
/// position, padding last. A round has whole chunks; slots past the last token hold none.
///
/// An input of at most one chunk is not sorted: one round, every token in its place.
class LshOrder {
 public:
  static constexpr std::int32_t none = -1;

  Index tokens() const { return tokens_; }
  /// Batch items times heads.
  Index owners() const { return owners_; }
  const Lsh& lsh() const { return lsh_; }
  Index rounds() const { return rounds_; }
  bool sorted() const { return sorted_; }
  Index slots_per_round() const { return slots_per_round_; }
  Index slots() const { return rounds_ * slots_per_round_; }
  /// The position of the token in each slot. Keys are sorted as queries are unless the call keeps
  /// them apart.
  const std::int32_t* queries(Index owner) const { return queries_.data() + owner * slots(); }
  const std::int32_t* keys(Index owner) const {
    return keys_.size() == 0 ? queries(owner) : keys_.data() + owner * slots();
  }

 private:
  friend class LshSorter;
  Lsh lsh_;
  Index owners_ = 0, tokens_ = 0, rounds_ = 1, slots_per_round_ = 0;
  bool sorted_ = false;
  Buffer<std::int32_t> queries_, keys_;  // [batch * heads][slots]
};

/// Operands and rule of one call.
struct LshInput {
  const AnyView& q;
  const AnyView& k;
  const Lsh& lsh;
  const std::optional<View>& rotations;
  const std::vector<bool>& padding;  // by position
  const Context& context;
};

std::shared_ptr<const LshOrder> sort_tokens(const LshInput& input);
/// The order that a cache has kept, for all tokens of one sequence.
std::shared_ptr<const LshOrder> order_of(const LshInput& input, const LshPlaces& places);
/// Nothing is hashed: the chunks of every round are those of the sequence.
std::shared_ptr<const LshOrder> leave_tokens(const LshInput& input);

}  // namespace rapt
