#include "support/truth/hashed_truth.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/torch_random.h"

namespace rapt::test {
using namespace detail;
namespace {

double number(const Tensor& x, Index head, Index token, Index c) {
  return static_cast<double>(x.data()[(head * x.shape()[2] + token) * x.shape()[3] + c]);
}

bool is_padding(const std::vector<bool>& padding, Index token) {
  return !padding.empty() && padding[static_cast<std::size_t>(token)];
}

}  // namespace

HashedTruth::HashedTruth(const Lsh& lsh, Index heads, Index dim) : lsh_(lsh), dim_(dim), half_(0) {
  for (const Index factor : lsh.buckets) half_ += factor / 2;
  rotations_.resize(static_cast<std::size_t>(heads * dim * lsh.rounds * half_));
  TorchRandom(lsh.seed).normal(rotations_);
}

Doubles HashedTruth::out(const Tensor& x, const Tensor& v, Index head, Index position,
                         const Pattern& rest, const std::vector<bool>& padding) const {
  const Index tokens = x.shape()[2], numbers = v.shape()[3];
  const std::map<Index, double> seen = meetings(x, head, position, padding);
  double most = -1e300, sum = 0;
  std::map<Index, double> logits;
  for (const Range& r : rest.keys_of(position, {tokens, tokens}))
    for (Index key = r.begin; key < r.end; ++key) {
      if (key == position || is_padding(padding, key) || seen.count(key) == 0) continue;
      logits[key] = logit(x, head, position, key);
      most = std::max(most, logits[key]);
    }
  Doubles y;
  for (Index c = 0; c < numbers; ++c)
    y.push_back(logits.empty() ? number(v, head, position, c) : 0);
  if (logits.empty()) return y;
  for (const auto& [key, z] : logits) {
    const double p = seen.at(key) * std::exp(z - most);
    sum += p;
    for (Index c = 0; c < numbers; ++c)
      y[static_cast<std::size_t>(c)] += p * number(v, head, key, c);
  }
  for (double& element : y) element /= sum;
  return y;
}

double HashedTruth::logit(const Tensor& x, Index head, Index i, Index j) const {
  double product = 0, square = 0;
  for (Index c = 0; c < dim_; ++c) {
    product += number(x, head, i, c) * number(x, head, j, c);
    square += number(x, head, j, c) * number(x, head, j, c);
  }
  const auto dim = static_cast<double>(dim_);
  return product / std::sqrt(square / dim + 1e-6) / std::sqrt(dim);
}

Index HashedTruth::bucket(const Tensor& x, Index head, Index round, Index token) const {
  Index bucket = 0, weight = 1, column = 0;
  for (const Index factor : lsh_.buckets) {
    Index best = 0;
    double most = -1e300;
    for (Index place = 0; place < factor; ++place) {
      double product = 0;
      for (Index c = 0; c < dim_; ++c) {
        const Index g =
            ((head * dim_ + c) * lsh_.rounds + round) * half_ + column + place % (factor / 2);
        product += number(x, head, token, c) *
                   static_cast<double>(rotations_[static_cast<std::size_t>(g)]);
      }
      if (place >= factor / 2) product = -product;
      if (product > most) most = product, best = place;
    }
    bucket += weight * best;
    weight *= factor;
    column += factor / 2;
  }
  return bucket;
}

/// One round in whole chunks; -1 where a slot holds no token.
std::vector<Index> HashedTruth::sorted(const Tensor& x, Index head, Index round,
                                       const std::vector<bool>& padding) const {
  const Index tokens = x.shape()[2];
  std::vector<Index> order(static_cast<std::size_t>(tokens)), buckets;
  std::iota(order.begin(), order.end(), 0);
  for (Index t = 0; t < tokens; ++t)
    buckets.push_back(is_padding(padding, t) ? Index{1} << 40 : bucket(x, head, round, t));
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) {
    return buckets[static_cast<std::size_t>(a)] < buckets[static_cast<std::size_t>(b)];
  });
  order.resize(static_cast<std::size_t>((tokens + lsh_.chunk - 1) / lsh_.chunk * lsh_.chunk), -1);
  return order;
}

std::map<Index, double> HashedTruth::meetings(const Tensor& x, Index head, Index position,
                                              const std::vector<bool>& padding) const {
  const Index tokens = x.shape()[2];
  std::map<Index, double> counts;
  for (Index key = 0; tokens <= lsh_.chunk && key < tokens; ++key) counts[key] = 1;
  if (tokens <= lsh_.chunk) return counts;
  std::vector<Index> slots;  // of all rounds
  for (Index round = 0; round < lsh_.rounds; ++round)
    for (const Index token : sorted(x, head, round, padding)) slots.push_back(token);
  const Index chunks = std::ssize(slots) / lsh_.chunk;
  for (Index s = 0; s < std::ssize(slots); ++s) {
    if (slots[static_cast<std::size_t>(s)] != position) continue;
    for (Index step = -lsh_.before; step <= lsh_.after; ++step)
      for (Index i = 0; i < lsh_.chunk; ++i) {
        const Index chunk = ((s / lsh_.chunk + step) % chunks + chunks) % chunks;
        const Index key = slots[static_cast<std::size_t>(chunk * lsh_.chunk + i)];
        if (key < 0) continue;
        counts[key] = lsh_.duplicates == Lsh::Duplicates::once ? 1 : counts[key] + 1;
      }
  }
  return counts;
}

}  // namespace rapt::test
