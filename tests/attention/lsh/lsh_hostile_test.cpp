#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "rapt/kv_cache.h"
#include "rapt/lsh_recall.h"
#include "support/engine.h"
#include "support/refused.h"
#include "support/truth/bound.h"
#include "support/truth/hashed_truth.h"

namespace rapt::test {
namespace {

Lsh with_buckets(Lsh lsh, std::vector<Index> buckets) {
  lsh.buckets = std::move(buckets);
  return lsh;
}

/// Whatever options allow, however little sense they make.
std::vector<Lsh> hostile_options() {
  const std::uint64_t last_seed = static_cast<std::uint64_t>(std::numeric_limits<Index>::max());
  return {with_buckets({.chunk = 1}, {2}),
          with_buckets({.chunk = 1, .rounds = 3, .before = 3, .after = 2}, {2}),
          with_buckets({.chunk = 2, .rounds = 64}, {4}),
          with_buckets({.chunk = 7, .seed = last_seed}, {2, 2, 2, 2, 2}),
          with_buckets({.chunk = 16, .before = 1024, .after = 1024}, {2}),
          with_buckets({.chunk = 1 << 20, .rounds = 5}, {64, 64}),
          with_buckets({.chunk = 3, .rounds = 2, .before = 0}, {4096}),
          with_buckets({.chunk = 5, .rounds = 2, .duplicates = Lsh::Duplicates::once}, {8})};
}

/// Probabilities sum to one: values of one come out as ones, up to the rounding of denominators at
/// -1e5 of tokens that see only themselves.
void expect_ones(const Tensor& out, const Tensor& lse, const std::string& what) {
  const Index numbers = out.elements() / std::max<Index>(1, lse.elements());
  for (Index i = 0; i < out.elements(); ++i) {
    const bool alone = lse.data()[i / numbers] < -5e4f;
    ASSERT_NEAR(out.data()[i], 1, alone ? 6e-3 : 2e-6) << what << ", number " << i;
  }
}

TEST(LshHostile, ProbabilitiesSumToOneWhateverTheOptionsAre) {
  for (const Lsh& options : hostile_options())
    for (const Index tokens : {1, 2, 3, 17, 64, 65, 130})
      for (const Index dim : {1, 3, 65}) {
        const Tensor x = random_tensor({2, 3, tokens, dim}, 1);
        Tensor ones({2, 3, tokens, 2});
        for (float& number : ones.numbers()) number = 1;
        const Attention how{.pattern = lsh(options) & causal()};
        const std::string what = to_string(how.pattern) + ", " + std::to_string(tokens) +
                                 " tokens of " + std::to_string(dim);
        const Attended y = attend(x, x, ones, how);
        expect_ones(y.out, y.lse, what);
        const Gradients g = attend_backward(ones, x, x, ones, y, how);
        // Values all alike: no probability matters, and gradients of values add up to their number.
        double total = 0;
        for (const float number : g.dv.numbers()) total += static_cast<double>(number);
        EXPECT_NEAR(total, static_cast<double>(y.out.elements()), 6e-3 * total) << what;
        for (const float number : g.dq.numbers()) ASSERT_NEAR(number, 0, 1e-4) << what;
        const LshRecall recall = lsh_recall(x, x, how);
        EXPECT_TRUE(recall.top >= 0 && recall.top <= 1 && recall.mass <= 1 + 1e-9) << what;
      }
}

TEST(LshHostile, CachesOfHostileOptionsAnswerAsTheDefinition) {
  for (const Lsh& options : hostile_options()) {
    CacheOptions made{.kv_heads = 2, .dim = 3, .value_dim = 2};
    made.lsh = CacheLsh{options};
    const Context& context = every_isa().front();
    KvCache cache(made, context);
    const KvCache::Sequence sequence = cache.add();
    const HashedTruth truth(options, 2, 3);
    const Attention how{.pattern = lsh(options) & causal()};
    const Tensor all = random_tensor({1, 2, 40, 3}, 1), values = random_tensor({1, 2, 40, 2}, 2);
    const auto first = [](const Tensor& x, Index begin, Index end) {
      Tensor y({1, 2, end - begin, x.shape()[3]});
      for (Index h = 0; h < 2; ++h)
        std::copy_n(x.data() + (h * 40 + begin) * x.shape()[3], (end - begin) * x.shape()[3],
                    y.data() + h * (end - begin) * x.shape()[3]);
      return y;
    };
    for (Index t = 0; t < 40; ++t) {
      const Tensor token = first(all, t, t + 1);
      cache.append(sequence, token, first(values, t, t + 1));
      const Attended got = attend(token, cache, {&sequence, 1}, how);
      for (Index head = 0; head < 2; ++head) {
        const Doubles want =
            truth.out(first(all, 0, t + 1), first(values, 0, t + 1), head, t, causal());
        const double slack = got.lse.data()[head] < -5e4f ? 6e-3 : 2e-6;
        for (std::size_t c = 0; c < 2; ++c)
          ASSERT_NEAR(got.out.data()[head * 2 + static_cast<Index>(c)], want[c],
                      slack * (1 + std::abs(want[c])))
              << to_string(lsh(options)) << ", token " << t;
      }
    }
  }
}

/// All in one bucket, zeros (a tie of every rotation), tiny and huge numbers.
TEST(LshHostile, StrangeVectorsGiveNumbers) {
  const Lsh options = with_buckets({.chunk = 8, .rounds = 2}, {8, 4});
  const Tensor random = random_tensor({1, 2, 70, 16}, 1);
  Tensor ones({1, 2, 70, 4});
  for (float& number : ones.numbers()) number = 1;
  for (const float size : {0.0f, 1e-38f, 1e-20f, 1e8f}) {
    Tensor x = random.clone();
    for (float& number : x.numbers()) number *= size;
    const Attended y = attend(x, x, ones, {.pattern = lsh(options)});
    expect_ones(y.out, y.lse, "size " + std::to_string(size));
  }
  Tensor same({1, 2, 70, 16});
  for (float& number : same.numbers()) number = 0.5f;
  const Attended y = attend(same, same, ones, {.pattern = lsh(options)});
  expect_ones(y.out, y.lse, "equal tokens");
  Tensor broken = random.clone();
  at(broken, 0, 0, 5, 3) = std::numeric_limits<float>::infinity();
  at(broken, 0, 0, 6, 3) = std::numeric_limits<float>::quiet_NaN();
  const Attended z = attend(broken, broken, ones, {.pattern = lsh(options)});
  for (Index i = 70 * 4; i < 140 * 4; ++i) EXPECT_NEAR(z.out.data()[i], 1, 2e-6);  // the other head
}

TEST(LshHostile, OptionsOutOfRangeAreRefused) {
  const auto refuse = [](const Lsh& options, const std::string& what) {
    expect_refused([&] { lsh(options); }, {what});
  };
  refuse({.chunk = 0}, "chunk is 0");
  refuse({.chunk = (1 << 20) + 1}, "chunk is 1048577");
  refuse({.rounds = 0}, "rounds is 0");
  refuse({.rounds = 1025}, "rounds is 1025");
  refuse({.before = -1}, "before is -1");
  refuse({.after = 1025}, "after is 1025");
  refuse(with_buckets({}, {0}), "bucket factor is 0");
  refuse(with_buckets({}, {-2}), "bucket factor is -2");
  refuse(with_buckets({}, {7}), "bucket factor is 7");
  refuse(with_buckets({}, {4096, 4096}), "buckets");
  refuse(with_buckets({}, {1 << 20, 1 << 20, 1 << 20, 1 << 20}), "buckets");
  refuse({.seed = ~std::uint64_t{0}}, "seed");
  for (const char* text : {"lsh(64, 99999999999999999999)", "lsh(64, 1, {2", "lsh(-1)",
                           "lsh(64, 1, {2}, -1)", "lsh(64, once, once)"})
    EXPECT_THROW(Pattern::parse(text), std::invalid_argument) << text;
}

}  // namespace
}  // namespace rapt::test
