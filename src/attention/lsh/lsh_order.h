#pragma once

#include "attention/lsh/lsh_places.h"
#include "base/buffer.h"
#include "base/indexed_vector.h"
#include "kernels/context.h"
#include "rapt/attention.h"
#include "rapt/lsh.h"

namespace rapt {
namespace detail {
class LshSorter;
}
using namespace detail;

/// How the tokens of every (batch item, head) are sorted: round after round, by bucket and then by
/// position, padding last. A round has whole chunks; places past the last token hold none.
///
/// An input of at most one chunk is not sorted: one round, every token in its place.
class LshOrder {
 public:
  static constexpr std::int32_t none = -1;

  Index tokens() const { return tokens_; }
  /// Batch items times heads.
  Index batch_heads() const { return batch_heads_; }
  const Lsh& lsh() const { return lsh_; }
  Index rounds() const { return rounds_; }
  bool sorted() const { return sorted_; }
  Index sorted_per_round() const { return sorted_per_round_; }
  Index sorted_count() const { return rounds_ * sorted_per_round_; }
  /// The position of each sorted token. Keys are sorted as queries are unless the call keeps
  /// them apart.
  const std::int32_t* queries(Index batch_head) const {
    return queries_.data() + batch_head * sorted_count();
  }
  const std::int32_t* keys(Index batch_head) const {
    return keys_.size() == 0 ? queries(batch_head) : keys_.data() + batch_head * sorted_count();
  }

 private:
  friend class detail::LshSorter;
  Lsh lsh_;
  Index batch_heads_ = 0, tokens_ = 0, rounds_ = 1, sorted_per_round_ = 0;
  bool sorted_ = false;
  Buffer<std::int32_t> queries_, keys_;  // [batch * heads][sorted_count]
};

}  // namespace rapt

namespace rapt::detail {

/// Operands and rule of one call.
struct LshInput {
  const AnyView& q;
  const AnyView& k;
  const Lsh& lsh;
  const std::optional<View>& rotations;
  const IndexedVector<bool>& padding;  // by position
  const Context& context;
};

std::shared_ptr<const LshOrder> sort_tokens(const LshInput& input);
/// The order that a cache has kept, for all tokens of one sequence.
std::shared_ptr<const LshOrder> order_of(const LshInput& input, const LshPlaces& places);
/// One order of several heads, each of which has an order of its own; null if there are none.
std::shared_ptr<const LshOrder> join_heads(
    const std::vector<std::shared_ptr<const LshOrder>>& heads);
/// The order of one of its heads.
std::shared_ptr<const LshOrder> head_of(const LshOrder& order, Index batch_head);
/// Nothing is hashed: the chunks of every round are those of the sequence.
std::shared_ptr<const LshOrder> keep_order(const LshInput& input);

}  // namespace rapt::detail
