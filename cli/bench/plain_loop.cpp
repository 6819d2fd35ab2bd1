#include "cli/bench/plain_loop.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace rapt::cli {
namespace {

/// Eight independent sums, which a compiler can keep in vectors.
float dot(const float* a, const float* b, Index dim) {
  float sums[8] = {};
  Index c = 0;
  for (; c + 8 <= dim; c += 8)
    for (Index i = 0; i < 8; ++i) sums[i] += a[c + i] * b[c + i];
  for (; c < dim; ++c) sums[0] += a[c] * b[c];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

}  // namespace

void plain_loop(const Tensor& q, const Tensor& k, const Tensor& v, Tensor& out) {
  const Index heads = q.shape()[1], keys = k.shape()[2], dim = k.shape()[3];
  const Index group = heads / k.shape()[1];
  const float scale = 1 / std::sqrt(static_cast<float>(dim));
  std::vector<float> scores(static_cast<std::size_t>(keys));
  for (Index head = 0; head < heads; ++head) {
    const float* query = q.data() + head * dim;
    const float* head_keys = k.data() + head / group * keys * dim;
    const float* head_values = v.data() + head / group * keys * dim;
    float* to = out.data() + head * dim;
    float most = -std::numeric_limits<float>::infinity();
    for (Index j = 0; j < keys; ++j) {
      const float score = dot(query, head_keys + j * dim, dim) * scale;
      scores.data()[j] = score;
      most = std::max(most, score);
    }
    float sum = 0;
    std::fill_n(to, dim, 0.0f);
    for (Index j = 0; j < keys; ++j) {
      const float p = std::exp(scores.data()[j] - most);
      sum += p;
      for (Index c = 0; c < dim; ++c) to[c] += p * head_values[j * dim + c];
    }
    for (Index c = 0; c < dim; ++c) to[c] /= sum;
  }
}

}  // namespace rapt::cli
