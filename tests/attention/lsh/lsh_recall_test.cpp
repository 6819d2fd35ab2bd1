#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "attention/lsh/lsh_order.h"
#include "rapt/lsh_recall.h"
#include "support/engine.h"
#include "support/refused.h"

namespace rapt::test {
using namespace detail;
namespace {

/// Straight from the words of the header, for every query of a [1, 1, tokens, 8] call.
LshRecall counted(const Tensor& x, const Lsh& lsh, const Pattern& rest, Index top) {
  const Index tokens = x.shape()[2];
  const Attended y = attend(x, x, x, {.pattern = rapt::lsh(lsh) & rest});
  const LshOrder& order = *y.rows.order;
  const auto dot = [&](Index i, Index j) {
    double product = 0, square = 0;
    for (Index c = 0; c < 8; ++c) {
      const double k = x.data()[j * 8 + c];
      product += x.data()[i * 8 + c] * k;
      square += k * k;
    }
    return product / std::sqrt(square / 8 + 1e-6) / std::sqrt(8.0);
  };
  LshRecall all;
  for (Index i = 0; i < tokens; ++i) {
    std::set<Index> met;
    const Index chunks = order.sorted_count() / lsh.chunk;
    for (Index s = 0; s < order.sorted_count(); ++s)
      for (Index b = 0; b < order.sorted_count() && order.queries(0)[s] == i; ++b)
        for (Index step = -lsh.before; step <= lsh.after; ++step)
          if (((s / lsh.chunk + step) % chunks + chunks) % chunks == b / lsh.chunk)
            met.insert(order.queries(0)[b]);
    std::vector<Index> seen;
    for (const Range& r : rest.keys_of(i, {tokens, tokens}))
      for (Index j = r.begin; j < r.end; ++j)
        if (j != i) seen.push_back(j);
    if (seen.empty()) continue;
    std::sort(seen.begin(), seen.end(), [&](Index a, Index b) { return dot(i, a) > dot(i, b); });
    const Index count = std::min(top, std::ssize(seen));
    double mass = 0, found = 0, near = 0, keys = 0;
    for (Index n = 0; n < std::ssize(seen); ++n) {
      const bool here = met.count(seen[static_cast<std::size_t>(n)]) > 0;
      const double p = std::exp(dot(i, seen[static_cast<std::size_t>(n)]));
      mass += p, found += here * p, keys += here, near += here && n < count;
    }
    all.top += near / static_cast<double>(count);
    all.mass += found / mass;
    all.keys += keys / static_cast<double>(seen.size());
    ++all.queries;
  }
  const auto n = static_cast<double>(all.queries);
  all.top /= n, all.mass /= n, all.keys /= n;
  return all;
}

TEST(LshRecall, IsWhatCountingGives) {
  const Tensor x = random_tensor({1, 1, 75, 8}, 1);
  for (const Lsh& lsh : {Lsh{.chunk = 8, .rounds = 1, .buckets = {4}},
                         Lsh{.chunk = 8, .rounds = 3, .buckets = {4, 2}, .before = 0, .after = 1},
                         Lsh{.chunk = 30, .rounds = 2, .buckets = {2}, .before = 3}})
    for (const Pattern& rest : {full(), causal(), window(9, 3) & keys(60)}) {
      const LshRecall want = counted(x, lsh, rest, 5);
      const LshRecall got =
          lsh_recall(x, x, {.pattern = rapt::lsh(lsh) & rest}, {.top = 5, .queries = {}});
      EXPECT_NEAR(got.top, want.top, 1e-12);
      EXPECT_NEAR(got.mass, want.mass, 1e-5);
      EXPECT_NEAR(got.keys, want.keys, 1e-12);
      EXPECT_EQ(got.queries, want.queries);
    }
}

TEST(LshRecall, OneChunkFindsEverythingAndRoundsFindMore) {
  const Tensor x = random_tensor({2, 2, 400, 16}, 1), k = random_tensor({2, 2, 400, 16}, 2);
  const LshRecall all = lsh_recall(x, x, {.pattern = lsh({.chunk = 400})});
  EXPECT_EQ(all.top, 1);
  EXPECT_NEAR(all.mass, 1, 1e-12);
  EXPECT_EQ(all.keys, 1);
  EXPECT_EQ(all.queries, 4 * 256);
  double last = 0;
  for (const Index rounds : {1, 2, 4, 8}) {
    const Attention how{.pattern = lsh({.chunk = 16, .rounds = rounds, .buckets = {16}})};
    const LshRecall shared = lsh_recall(x, x, how);
    EXPECT_GT(shared.top, last);
    EXPECT_GT(shared.top, shared.keys);  // better than chance
    EXPECT_GT(shared.mass, shared.keys);
    last = shared.top;
    const Attention apart{.pattern =
                              lsh({.chunk = 16, .rounds = rounds, .keys = Lsh::Keys::separate})};
    EXPECT_GT(lsh_recall(x, k, apart).mass, 0);
  }
}

TEST(LshRecall, MistakesAreNamed) {
  const Tensor x = random_tensor({1, 2, 40, 8}, 1), other = random_tensor({1, 2, 41, 8}, 1);
  expect_refused([&] { lsh_recall(x, x, {.pattern = causal()}); }, {"causal", "lsh leaf"});
  expect_refused([&] { lsh_recall(x, other, {.pattern = lsh({})}); }, {"[1, 2, 41, 8]"});
  expect_refused([&] { lsh_recall(x, x, {.pattern = lsh({})}, {.top = 0}); }, {"top is 0"});
  expect_refused([&] { lsh_recall(x, x, {.pattern = lsh({})}, {.queries = -1}); }, {"queries"});
  expect_refused([&] { lsh_recall(x, x, {.pattern = lsh({}), .bias = alibi(2)}); }, {"bias"});
}

}  // namespace
}  // namespace rapt::test
