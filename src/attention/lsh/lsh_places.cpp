#include "attention/lsh/lsh_places.h"

#include <algorithm>
#include <bit>

#include "base/sizes.h"

namespace rapt {

LshPlaces::LshPlaces(Index owners, Index buckets)
    : owners_(owners),
      bucket_count_(buckets),
      lists_(static_cast<std::size_t>(checked_product({owners, buckets}))),
      sums_(static_cast<std::size_t>(checked_product({owners, buckets + 1}))) {}

void LshPlaces::count(Index owner, Index bucket, std::int32_t change) {
  for (Index i = bucket + 1; i <= bucket_count_; i += i & -i) sums(owner)[i] += change;
}

Index LshPlaces::before(Index owner, Index bucket) const {
  Index total = 0;
  for (Index i = bucket; i > 0; i -= i & -i) total += sums(owner)[i];
  return total;
}

void LshPlaces::add(const std::uint16_t* buckets) {
  buckets_.insert(buckets_.end(), buckets, buckets + owners_);
  Index done = 0;
  try {
    for (; done < owners_; ++done)
      list(done, buckets[done]).push_back(static_cast<std::int32_t>(tokens_));
  } catch (...) {
    while (done > 0) --done, list(done, buckets[done]).pop_back();
    buckets_.resize(buckets_.size() - static_cast<std::size_t>(owners_));
    throw;
  }
  for (Index owner = 0; owner < owners_; ++owner) count(owner, buckets[owner], 1);
  ++tokens_;
}

void LshPlaces::drop_last() {
  --tokens_;
  for (Index owner = 0; owner < owners_; ++owner) {
    list(owner, bucket(owner, tokens_)).pop_back();
    count(owner, bucket(owner, tokens_), -1);
  }
  buckets_.resize(static_cast<std::size_t>(tokens_ * owners_));
}

void LshPlaces::truncate(Index tokens) {
  while (tokens_ > tokens) drop_last();
}

Index LshPlaces::slot(Index owner, Index position) const {
  const Index bucket_here = bucket(owner, position);
  const std::vector<std::int32_t>& mates = list(owner, bucket_here);
  const auto here = std::lower_bound(mates.begin(), mates.end(), position);
  return before(owner, bucket_here) + (here - mates.begin());
}

LshPlaces::Found LshPlaces::find(Index owner, Index slot) const {
  Index at = 0;
  for (Index step = static_cast<Index>(std::bit_floor(static_cast<std::uint64_t>(bucket_count_)));
       step > 0; step /= 2) {
    if (at + step > bucket_count_ || sums(owner)[at + step] > slot) continue;
    at += step;
    slot -= sums(owner)[at];
  }
  return {at, slot};
}

void LshPlaces::read(Index owner, Index first, Index last, std::vector<std::int32_t>& out) const {
  for (last = std::min(last, tokens_); first < last;) {
    const auto [bucket, rank] = find(owner, first);
    const std::vector<std::int32_t>& mates = list(owner, bucket);
    const Index count = std::min(last - first, std::ssize(mates) - rank);
    out.insert(out.end(), mates.begin() + rank, mates.begin() + rank + count);
    first += count;
  }
}

}  // namespace rapt
