#include "attention/lsh/lsh_rotations.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <mutex>
#include <numeric>

#include "base/check.h"
#include "base/torch_random.h"

namespace rapt::detail {

Index lsh_half(const std::vector<Index>& factors) {
  return std::accumulate(factors.begin(), factors.end(), Index{0}) / 2;
}

Index lsh_bucket_count(const std::vector<Index>& factors) {
  return std::accumulate(factors.begin(), factors.end(), Index{1}, std::multiplies<Index>());
}

double inverse_rms(const float* row, Index dim) {
  const auto square_of = [&](Index c) {
    return static_cast<double>(row[c]) * static_cast<double>(row[c]);
  };
  double square = 0, others[3] = {};  // independent sums, which hide the latency of additions
  Index c = 0;
  for (; c + 4 <= dim; c += 4) {
    square += square_of(c);
    for (Index i = 0; i < 3; ++i) others[i] += square_of(c + 1 + i);
  }
  for (; c < dim; ++c) square += square_of(c);
  square += others[0] + others[1] + others[2];
  return 1 / std::sqrt(square / static_cast<double>(dim) + 1e-6);
}

namespace {

using SharedNumbers = std::shared_ptr<const Buffer<float>>;

/// The first normal numbers of a seed. Layers of a model draw the same ones again and again, which
/// is slow and done by one thread: the last ones are kept.
SharedNumbers drawn_rotations(std::uint64_t seed, Index count) {
  static std::mutex mutex;
  static SharedNumbers last;
  static std::uint64_t last_seed = 0;
  const std::lock_guard lock(mutex);
  if (last == nullptr || last_seed != seed || last->size() != count) {
    Buffer<float> numbers(count);
    TorchRandom(seed).normal({numbers.begin(), numbers.end()});
    last = std::make_shared<const Buffer<float>>(std::move(numbers));
    last_seed = seed;
  }
  return last;
}

}  // namespace

LshRotations::LshRotations(const Lsh& lsh, const std::vector<Index>& factors, Index heads,
                           Index dim, const std::optional<View>& given)
    : dim_(dim), columns_(lsh.rounds * lsh_half(factors)), given_(given) {
  if (given) {
    const Shape expected{heads, dim, lsh.rounds, lsh_half(factors)};
    check(given->shape() == expected, "lsh: rotations have shape ", given->shape(), ", expected ",
          expected, " (heads, dim, rounds, half the sum of the bucket factors)");
    return;
  }
  drawn_ = drawn_rotations(lsh.seed, checked_product({heads, dim, columns_}));
}

float LshRotations::at(Index head, Index d, Index column) const {
  if (!given_) return (*drawn_)[(head * dim_ + d) * columns_ + column];
  const Index half = given_->size(3);
  return given_->data()[head * given_->stride(0) + d * given_->stride(1) +
                        column / half * given_->stride(2) + column % half * given_->stride(3)];
}

void LshRotations::copy(Index head, float* rows) const {
  for (Index c = 0; c < columns_; ++c)
    for (Index d = 0; d < dim_; ++d) rows[c * dim_ + d] = at(head, d, c);
}

void find_buckets(const Kernels& kernels, const std::vector<Index>& factors, const float* rotated,
                  Index count, std::int32_t* buckets) {
  std::int32_t best[tile];
  Index weight = 1;
  std::fill(buckets, buckets + count, 0);
  for (const Index factor : factors) {
    kernels.lsh.signed_argmax(rotated, factor / 2, best);
    for (Index i = 0; i < count; ++i) buckets[i] += static_cast<std::int32_t>(weight) * best[i];
    rotated += factor / 2 * tile;
    weight *= factor;
  }
}

}  // namespace rapt::detail
