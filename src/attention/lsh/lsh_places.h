#pragma once

#include <cstdint>
#include <vector>

#include "base/indexed_vector.h"
#include "rapt/tensor.h"

namespace rapt::detail {

/// The tokens of one growing sequence in sorted order, for each head and round: by bucket, then by
/// position. A new token comes last in its bucket, so nothing is ever sorted; the token at a sorted
/// index is found through counts of the buckets before it, in time log(buckets).
class LshPlaces {
 public:
  LshPlaces(Index head_rounds, Index buckets);

  Index tokens() const { return tokens_; }
  /// Adds the next token, whose bucket for head_round i is buckets[i]. Nothing changes if it
  /// throws.
  void add(const std::uint16_t* buckets);
  void truncate(Index tokens);

  std::uint16_t bucket(Index head_round, Index position) const {
    return buckets_[position * head_rounds_ + head_round];
  }
  Index tokens_in(Index head_round, Index bucket) const {
    return std::ssize(list(head_round, bucket));
  }
  /// Where a token is in sorted order.
  Index sorted_index(Index head_round, Index position) const;
  /// Appends the positions of sorted tokens [first, last), as far as there are any.
  void read(Index head_round, Index first, Index last, std::vector<std::int32_t>& out) const;

 private:
  /// Sums of counts over powers of two of buckets (Fenwick): adding and finding take log steps.
  std::int32_t* sums(Index head_round) { return sums_.data() + head_round * (bucket_count_ + 1); }
  const std::int32_t* sums(Index head_round) const {
    return sums_.data() + head_round * (bucket_count_ + 1);
  }
  void count(Index head_round, Index bucket, std::int32_t change);
  Index before(Index head_round, Index bucket) const;
  /// The bucket of a sorted token, and how many tokens of the bucket come before it.
  struct Found {
    Index bucket, rank;
  };
  Found find(Index head_round, Index sorted_index) const;
  const std::vector<std::int32_t>& list(Index head_round, Index bucket) const {
    return lists_[head_round * bucket_count_ + bucket];
  }
  std::vector<std::int32_t>& list(Index head_round, Index bucket) {
    return lists_[head_round * bucket_count_ + bucket];
  }
  void drop_last();

  Index head_rounds_, bucket_count_, tokens_ = 0;
  IndexedVector<std::vector<std::int32_t>> lists_;  // [head_rounds][buckets] positions, ascending
  IndexedVector<std::int32_t> sums_;                // [head_rounds][buckets + 1]
  IndexedVector<std::uint16_t> buckets_;            // [tokens][head_rounds]
};

}  // namespace rapt::detail
