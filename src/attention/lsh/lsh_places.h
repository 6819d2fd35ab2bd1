#pragma once

#include <cstdint>
#include <vector>

#include "rapt/tensor.h"

namespace rapt {

/// The tokens of one growing sequence in the sorted order of each owner (a head and a round): by
/// bucket, then by position. A new token comes last in its bucket, so nothing is ever sorted; what
/// a slot holds is found through counts of the buckets before it, in time log(buckets).
class LshPlaces {
 public:
  LshPlaces(Index owners, Index buckets);

  Index tokens() const { return tokens_; }
  /// Adds the next token, whose bucket for owner o is buckets[o]. Nothing changes if it throws.
  void add(const std::uint16_t* buckets);
  void truncate(Index tokens);

  std::uint16_t bucket(Index owner, Index position) const {
    return buckets_[static_cast<std::size_t>(position * owners_ + owner)];
  }
  Index tokens_in(Index owner, Index bucket) const { return std::ssize(list(owner, bucket)); }
  /// The slot of a token.
  Index slot(Index owner, Index position) const;
  /// Appends the positions in slots [first, last), as far as there are tokens.
  void read(Index owner, Index first, Index last, std::vector<std::int32_t>& out) const;

 private:
  /// Sums of counts over powers of two of buckets (Fenwick): adding and finding take log steps.
  std::int32_t* sums(Index owner) { return sums_.data() + owner * (bucket_count_ + 1); }
  const std::int32_t* sums(Index owner) const { return sums_.data() + owner * (bucket_count_ + 1); }
  void count(Index owner, Index bucket, std::int32_t change);
  Index before(Index owner, Index bucket) const;
  /// The bucket of the token in a slot, and how many of its mates come before it.
  struct Found {
    Index bucket, rank;
  };
  Found find(Index owner, Index slot) const;
  const std::vector<std::int32_t>& list(Index owner, Index bucket) const {
    return lists_[static_cast<std::size_t>(owner * bucket_count_ + bucket)];
  }
  std::vector<std::int32_t>& list(Index owner, Index bucket) {
    return lists_[static_cast<std::size_t>(owner * bucket_count_ + bucket)];
  }
  void drop_last();

  Index owners_, bucket_count_, tokens_ = 0;
  std::vector<std::vector<std::int32_t>> lists_;  // [owners][buckets] positions, ascending
  std::vector<std::int32_t> sums_;                // [owners][buckets + 1]
  std::vector<std::uint16_t> buckets_;            // [tokens][owners]
};

}  // namespace rapt
