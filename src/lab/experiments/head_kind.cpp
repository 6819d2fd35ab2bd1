#include "lab/experiments/head_kind.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/indexed_vector.h"
#include "base/random.h"
#include "lab/experiments/numbers.h"

namespace rapt::lab {
using namespace detail;
namespace {

/// Rows of length sqrt(dim) * factor.
void set_lengths(Tensor& rows, double factor) {
  const std::vector<double> lengths = row_lengths(rows);
  const Index dim = rows.shape()[3];
  for (std::size_t r = 0; r < lengths.size(); ++r)
    for (Index c = 0; c < dim; ++c)
      rows.data()[static_cast<Index>(r) * dim + c] *=
          static_cast<float>(factor * std::sqrt(static_cast<double>(dim)) / lengths[r]);
}

/// A walk: neighbours are alike, and the farther apart two tokens are, the less.
Tensor walk(Index tokens, Index dim, double keep, std::uint64_t seed) {
  Tensor rows = normals({1, 1, tokens, dim}, seed);
  const double fresh = std::sqrt(1 - keep * keep);
  for (Index t = 1; t < tokens; ++t)
    for (Index c = 0; c < dim; ++c)
      rows.data()[t * dim + c] = static_cast<float>(keep * rows.data()[(t - 1) * dim + c] +
                                                    fresh * rows.data()[t * dim + c]);
  return rows;
}

/// Vectors around random centres; neighbours in the text are strangers.
Tensor clusters(Index tokens, Index dim, Index count, std::uint64_t seed) {
  const Tensor centres = normals({count, dim}, seed);
  Tensor rows = normals({1, 1, tokens, dim}, seed + 1);
  for (Index t = 0; t < tokens; ++t) {
    const Index cluster = random_below(random_bits(seed, {t}), count);
    for (Index c = 0; c < dim; ++c)
      rows.data()[t * dim + c] =
          centres.data()[cluster * dim + c] + 0.5f * rows.data()[t * dim + c];
  }
  return rows;
}

}  // namespace

std::vector<HeadKind> head_kinds(Index tokens, Index dim, std::uint64_t seed) {
  std::vector<HeadKind> kinds;
  const auto add = [&](const char* name, Tensor q, double length) {
    set_lengths(q, length);
    Tensor k = q.clone();
    kinds.push_back({name, std::move(q), std::move(k)});
  };
  add("local", walk(tokens, dim, 0.97, seed), 1.15);
  add("content", clusters(tokens, dim, 64, seed + 2), 1.15);
  add("sink", normals({1, 1, tokens, dim}, seed + 4), 0.7);
  // All queries have a small component along the first four keys.
  HeadKind& sink = kinds.back();
  for (Index t = 0; t < tokens; ++t) sink.q.data()[t * dim] = 4;
  for (Index t = 0; t < 4; ++t) sink.k.data()[t * dim] = 14;
  add("diffuse", normals({1, 1, tokens, dim}, seed + 5), 0.5);
  return kinds;
}

double mass_within(const HeadKind& head, const Pattern& wide, const Pattern& narrow,
                   const Context& context) {
  const Tensor v({1, 1, head.k.shape()[2], 1});
  Attention how;
  how.pattern = wide;
  const Tensor all = attend(head.q.view(), head.k.view(), v.view(), how, context).lse;
  how.pattern = narrow;
  const Tensor part = attend(head.q.view(), head.k.view(), v.view(), how, context).lse;
  double sum = 0;
  for (Index i = 0; i < all.elements(); ++i)
    sum += std::exp(static_cast<double>(part.data()[i]) - static_cast<double>(all.data()[i]));
  return sum / static_cast<double>(all.elements());
}

std::vector<double> mass_of_largest(const HeadKind& head, const std::vector<Index>& counts,
                                    const Context& context) {
  const Index tokens = head.q.shape()[2], dim = head.q.shape()[3],
              step = std::max<Index>(1, tokens / 128);
  const Tensor v({1, 1, tokens, 1});
  Attention how;
  how.pattern = causal();
  const Tensor lse = attend(head.q.view(), head.k.view(), v.view(), how, context).lse;
  std::vector<double> sums(counts.size());
  Index rows = 0;
  for (Index i = tokens / 2; i < tokens; i += step, ++rows) {
    IndexedVector<double> p;
    for (Index j = 0; j <= i; ++j) {
      double score = 0;
      for (Index c = 0; c < dim; ++c)
        score += static_cast<double>(head.q.data()[i * dim + c]) *
                 static_cast<double>(head.k.data()[j * dim + c]);
      p.push_back(std::exp(score / std::sqrt(static_cast<double>(dim)) -
                           static_cast<double>(lse.data()[i])));
    }
    std::sort(p.begin(), p.end(), std::greater<>());
    for (std::size_t n = 0; n < counts.size(); ++n)
      for (Index j = 0; j < std::min(counts[n], std::ssize(p)); ++j) sums[n] += p[j];
  }
  for (double& sum : sums) sum /= static_cast<double>(std::max<Index>(1, rows));
  return sums;
}

}  // namespace rapt::lab
