#include "attention/lsh/lsh_places.h"

#include <algorithm>
#include <bit>

#include "base/sizes.h"

namespace rapt::detail {

LshPlaces::LshPlaces(Index head_rounds, Index buckets)
    : head_rounds_(head_rounds),
      bucket_count_(buckets),
      lists_(checked_product({head_rounds, buckets})),
      sums_(checked_product({head_rounds, buckets + 1})) {}

void LshPlaces::count(Index head_round, Index bucket, std::int32_t change) {
  for (Index i = bucket + 1; i <= bucket_count_; i += i & -i) sums(head_round)[i] += change;
}

Index LshPlaces::before(Index head_round, Index bucket) const {
  Index total = 0;
  for (Index i = bucket; i > 0; i -= i & -i) total += sums(head_round)[i];
  return total;
}

void LshPlaces::add(const std::uint16_t* buckets) {
  buckets_.insert(buckets_.end(), buckets, buckets + head_rounds_);
  Index done = 0;
  try {
    for (; done < head_rounds_; ++done)
      list(done, buckets[done]).push_back(static_cast<std::int32_t>(tokens_));
  } catch (...) {
    while (done > 0) --done, list(done, buckets[done]).pop_back();
    buckets_.resize(std::ssize(buckets_) - head_rounds_);
    throw;
  }
  for (Index head_round = 0; head_round < head_rounds_; ++head_round)
    count(head_round, buckets[head_round], 1);
  ++tokens_;
}

void LshPlaces::drop_last() {
  --tokens_;
  for (Index head_round = 0; head_round < head_rounds_; ++head_round) {
    list(head_round, bucket(head_round, tokens_)).pop_back();
    count(head_round, bucket(head_round, tokens_), -1);
  }
  buckets_.resize(tokens_ * head_rounds_);
}

void LshPlaces::truncate(Index tokens) {
  while (tokens_ > tokens) drop_last();
}

Index LshPlaces::sorted_index(Index head_round, Index position) const {
  const Index bucket_here = bucket(head_round, position);
  const std::vector<std::int32_t>& mates = list(head_round, bucket_here);
  const auto here = std::lower_bound(mates.begin(), mates.end(), position);
  return before(head_round, bucket_here) + (here - mates.begin());
}

LshPlaces::Found LshPlaces::find(Index head_round, Index sorted_index) const {
  Index at = 0;
  for (Index step = static_cast<Index>(std::bit_floor(static_cast<std::uint64_t>(bucket_count_)));
       step > 0; step /= 2) {
    if (at + step > bucket_count_ || sums(head_round)[at + step] > sorted_index) continue;
    at += step;
    sorted_index -= sums(head_round)[at];
  }
  return {at, sorted_index};
}

void LshPlaces::read(Index head_round, Index first, Index last,
                     std::vector<std::int32_t>& out) const {
  for (last = std::min(last, tokens_); first < last;) {
    const auto [bucket, rank] = find(head_round, first);
    const std::vector<std::int32_t>& mates = list(head_round, bucket);
    const Index count = std::min(last - first, std::ssize(mates) - rank);
    out.insert(out.end(), mates.begin() + rank, mates.begin() + rank + count);
    first += count;
  }
}

}  // namespace rapt::detail
