#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "rapt/models/generate.h"
#include "support/refused.h"

namespace rapt::test {
namespace {

using Ids = std::vector<std::int32_t>;

const std::vector<float> logits = {0.5f, 2, -1, 1.5f, 2, 0, -3, 1};

/// How often each token comes up at so many places.
std::vector<double> frequencies(const std::vector<float>& of, const Sampling& sampling, int draws) {
  std::vector<double> counts(of.size());
  Ids so_far;
  for (int i = 0; i < draws; ++i) {
    // Places are told apart by sequence and length.
    so_far.resize(static_cast<std::size_t>(i % 50));
    counts[static_cast<std::size_t>(
        draw_token(of, so_far, sampling, static_cast<std::uint64_t>(i / 50)))] += 1;
  }
  return counts;
}

std::vector<double> softmax(const std::vector<float>& of, double temperature) {
  std::vector<double> p;
  double sum = 0;
  for (const float x : of) sum += p.emplace_back(std::exp(static_cast<double>(x) / temperature));
  for (double& x : p) x /= sum;
  return p;
}

/// Pearson's statistic against exact probabilities; tokens that cannot come must not.
double chi_square(const std::vector<double>& counts, const std::vector<double>& p, double draws) {
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) {
      EXPECT_EQ(counts[i], 0) << i;
      continue;
    }
    sum += std::pow(counts[i] - draws * p[i], 2) / (draws * p[i]);
  }
  return sum;
}

// With 7 degrees of freedom 24.3 is exceeded once in a thousand times; the seeds are fixed.
TEST(Sampler, DrawsWithTheProbabilitiesOfTheSoftmax) {
  constexpr int draws = 100000;
  for (const double temperature : {0.5, 1.0, 3.0})
    for (const std::uint64_t seed : {1u, 2u}) {
      const Sampling sampling{.temperature = temperature, .seed = seed};
      EXPECT_LT(
          chi_square(frequencies(logits, sampling, draws), softmax(logits, temperature), draws),
          24.3)
          << temperature << ' ' << seed;
    }
}

TEST(Sampler, NeighbouringPlacesAreIndependent) {
  // Pairs of draws at places n and n + 1, and of sequences s and s + 1: 4 x 4 outcomes.
  const std::vector<float> four = {0, 0, 0, 0};
  for (const bool by_sequence : {false, true}) {
    std::map<std::pair<int, int>, double> pairs;
    for (int i = 0; i < 32000; ++i) {
      const auto at = [&](int n) {
        const Ids so_far(static_cast<std::size_t>(by_sequence ? 5 : n % 1000));
        const int sequence = by_sequence ? n : n / 1000;
        return draw_token(four, so_far, {.seed = 9}, static_cast<std::uint64_t>(sequence));
      };
      pairs[{at(2 * i), at(2 * i + 1)}] += 1;
    }
    double sum = 0;
    for (int a = 0; a < 4; ++a)
      for (int b = 0; b < 4; ++b) sum += std::pow(pairs[{a, b}] - 2000, 2) / 2000;
    EXPECT_LT(sum, 37.7) << by_sequence;  // 15 degrees of freedom, one in a thousand
  }
}

/// Tokens that come up in many draws.
std::set<std::int32_t> kept(const Sampling& sampling) {
  const std::vector<double> counts = frequencies(logits, sampling, 20000);
  std::set<std::int32_t> ids;
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] > 0) ids.insert(static_cast<std::int32_t>(i));
  return ids;
}

/// What is left of the softmax, in f64: top_k, then min_p, then the fewest that reach top_p.
std::vector<double> kept_softmax(const std::vector<float>& of, const Sampling& sampling) {
  std::vector<std::size_t> order(of.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return of[a] > of[b]; });
  if (sampling.top_k) order.resize(static_cast<std::size_t>(*sampling.top_k));
  const std::vector<double> p = softmax(of, sampling.temperature);
  const double most = p[order.front()];
  std::erase_if(order, [&](std::size_t i) { return p[i] < sampling.min_p * most; });
  double all = 0, sum = 0;
  for (const std::size_t i : order) all += p[i];
  std::vector<double> kept(of.size());
  for (const std::size_t i : order) {
    if (sum >= sampling.top_p * all) break;
    kept[i] = p[i];
    sum += p[i];
  }
  for (double& x : kept) x /= sum;
  return kept;
}

// With 31 degrees of freedom 61.1 is exceeded once in a thousand times; the seeds are fixed.
TEST(Sampler, DrawsFromALargeVocabularyByTheDefinition) {
  constexpr int draws = 20000, bins = 32;
  std::vector<float> many(6007);
  for (std::size_t i = 0; i < many.size(); ++i)
    many[i] = static_cast<float>(i * 2654435761u % 1000) * 0.009f;
  many[17] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> numbers = many;
  numbers[17] = -1000;
  for (const Sampling& sampling :
       {Sampling{}, Sampling{.top_k = 40}, Sampling{.top_k = 5000}, Sampling{.top_p = 0.5},
        Sampling{.temperature = 1.7, .top_p = 0.97}, Sampling{.min_p = 0.01},
        Sampling{.top_k = 300, .top_p = 0.9}, Sampling{.top_p = 0.9, .min_p = 0.02}}) {
    const std::vector<double> p = kept_softmax(numbers, sampling);
    const std::vector<double> counts = frequencies(many, sampling, draws);
    // Neighbours share a bin until it has its part of the whole.
    std::vector<double> expected(bins), seen(bins);
    double sum = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
      const auto bin = static_cast<std::size_t>(std::min(bins - 1, static_cast<int>(sum * bins)));
      if (p[i] == 0) {
        ASSERT_EQ(counts[i], 0) << i << ", top_k " << sampling.top_k.value_or(0);
      }
      expected[bin] += p[i];
      seen[bin] += counts[i];
      sum += p[i];
    }
    EXPECT_LT(chi_square(seen, expected, draws), 61.1)
        << sampling.top_k.value_or(0) << ' ' << sampling.top_p << ' ' << sampling.min_p;
  }
}

TEST(Sampler, ATinyTemperatureDrawsTheLikeliest) {
  for (const double temperature : {1e-300, 1e-30, 1e-6})
    EXPECT_EQ(draw_token(std::vector<float>{1, 3, 2}, {}, {.temperature = temperature}, 1), 1);
}

TEST(Sampler, KeepsExactlyTheTokensItShould) {
  using Set = std::set<std::int32_t>;
  // From the likeliest: 1 and 4 (equal), 3, 7, 0, 5, 2, 6.
  EXPECT_EQ(kept({.top_k = 1}), Set({1}));
  EXPECT_EQ(kept({.top_k = 2}), Set({1, 4}));
  EXPECT_EQ(kept({.top_k = 3}), Set({1, 3, 4}));
  EXPECT_EQ(kept({.temperature = 9, .top_k = 100}), Set({0, 1, 2, 3, 4, 5, 6, 7}));
  const std::vector<double> p = softmax(logits, 1);
  EXPECT_EQ(kept({.temperature = 1, .top_p = p[1] * 0.99}), Set({1}));
  EXPECT_EQ(kept({.temperature = 1, .top_p = p[1] * 1.01}), Set({1, 4}));
  EXPECT_EQ(kept({.temperature = 1, .top_p = 2 * p[1] + 0.99 * p[3]}), Set({1, 3, 4}));
  EXPECT_EQ(kept({.temperature = 1, .top_p = 2 * p[1] + 1.01 * p[3]}), Set({1, 3, 4, 7}));
  EXPECT_EQ(kept({.temperature = 1, .min_p = std::exp(-1.0) * 0.99}), Set({1, 3, 4, 7}));
  EXPECT_EQ(kept({.temperature = 1, .min_p = std::exp(-1.0) * 1.01}), Set({1, 3, 4}));
  EXPECT_EQ(kept({.temperature = 1, .min_p = 1}), Set({1, 4}));
  // The temperature comes first: at 2 the distances are half as large.
  EXPECT_EQ(kept({.temperature = 2, .min_p = std::exp(-1.0) * 1.01}), Set({0, 1, 3, 4, 7}));
}

TEST(Sampler, DrawsAmongTheKeptOnesInProportion) {
  constexpr int draws = 60000;
  std::vector<double> p = softmax(logits, 1);
  for (const std::size_t gone : {0u, 2u, 5u, 6u, 7u}) p[gone] = 0;
  const double sum = p[1] + p[3] + p[4];
  for (double& x : p) x /= sum;
  for (const Sampling& sampling :
       {Sampling{.temperature = 1, .top_k = 3}, Sampling{.temperature = 1, .min_p = 0.5}})
    EXPECT_LT(chi_square(frequencies(logits, sampling, draws), p, draws), 13.8);  // 2 degrees
}

TEST(Sampler, TheLikeliestAndOfEqualsTheFirst) {
  EXPECT_EQ(draw_token(logits, {}, {.temperature = 0}, 0), 1);
  const std::vector<float> alike(5, 1.0f);
  for (std::uint64_t place = 0; place < 20; ++place) {
    EXPECT_EQ(draw_token(alike, {}, {.temperature = 0, .seed = place}, place), 0);
    EXPECT_EQ(draw_token(alike, {}, {.top_k = 1, .seed = place}, place), 0);
  }
  // Cold enough is greedy among the likeliest.
  EXPECT_EQ(kept({.temperature = 1e-3}), (std::set<std::int32_t>{1, 4}));
}

TEST(Sampler, RepetitionIsDividedOrMultiplied) {
  const auto greedy = [](const Ids& so_far, double penalty, std::optional<Index> window = 64) {
    const Sampling sampling{
        .temperature = 0, .repetition_penalty = penalty, .repetition_window = window};
    return draw_token(logits, so_far, sampling, 0);
  };
  EXPECT_EQ(greedy({1}, 1.1), 4);
  EXPECT_EQ(greedy({1, 4}, 1.1), 1);           // 1.82 each, still above 1.5
  EXPECT_EQ(greedy({1, 4, 1, 4, 4}, 1.1), 1);  // however often
  EXPECT_EQ(greedy({1, 4}, 1.5), 3);
  EXPECT_EQ(greedy({1, 4, 3}, 3), 7);
  EXPECT_EQ(greedy({1, 0, 0}, 1.1, 2), 1);   // too long ago
  EXPECT_EQ(greedy({1, 0, 0}, 1.1, {}), 4);  // all count
  const std::vector<float> below = {-1, -1.5f};
  EXPECT_EQ(draw_token(below, Ids{0}, {.temperature = 0, .repetition_penalty = 2}, 0), 1);
  EXPECT_EQ(draw_token(below, Ids{0}, {.temperature = 0, .repetition_penalty = 0.5}, 0), 0);
}

TEST(Sampler, NumbersThatAreNone) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(draw_token(std::vector<float>{nan, 1, 2, nan}, {}, {.temperature = 0}, 0), 2);
  for (std::uint64_t i = 0; i < 200; ++i) {
    EXPECT_EQ(draw_token(std::vector<float>{nan, 1, -inf, nan}, {}, {}, i), 1);
    EXPECT_NE(draw_token(std::vector<float>{nan, 1, 2, nan}, {}, {.top_k = 3}, i), 0);
  }
  expect_refused([&] { draw_token(std::vector<float>{nan, nan}, {}, {}, 0); }, {"no logit"});
  expect_refused([&] { draw_token(std::vector<float>{}, {}, {}, 0); }, {"no logit"});
  expect_refused([&] { draw_token(std::vector<float>{1, inf}, {}, {}, 0); }, {"finite"});
  expect_refused([&] { draw_token(std::vector<float>{-inf, -inf}, {}, {}, 0); }, {"finite"});
}

TEST(Sampler, NoTemperatureDrawsAHiddenToken) {
  std::vector<float> logits(1000, -std::numeric_limits<float>::infinity());
  logits[3] = -7, logits[600] = 2;
  for (const double temperature : {1e-300, 1e-3, 1.0, 1e30, 1e46, 1e300})
    for (const Sampling& how : {Sampling{}, Sampling{.top_p = 0.9}, Sampling{.top_k = 50},
                                Sampling{.min_p = 0.1}, Sampling{.top_k = 50, .top_p = 0.5}})
      for (std::uint64_t i = 0; i < 50; ++i) {
        Sampling at = how;
        at.temperature = temperature;
        const std::int32_t id = draw_token(logits, {}, at, i);
        EXPECT_TRUE(id == 3 || id == 600) << id << " at " << temperature;
      }
}

TEST(Sampler, RefusesWhatIsOutOfRange) {
  const auto refused = [](const Sampling& sampling, const char* name) {
    expect_refused([&] { sampling.check(); }, {name, "expected"});
  };
  refused({.temperature = -1}, "temperature");
  refused({.temperature = std::nan("")}, "temperature");
  refused({.top_k = -1}, "top_k");
  refused({.top_k = 0}, "top_k");
  refused({.top_p = 0}, "top_p");
  refused({.top_p = 1.5}, "top_p");
  refused({.min_p = 2}, "min_p");
  refused({.repetition_penalty = 0}, "repetition_penalty");
  refused({.repetition_window = -2}, "repetition_window");
  refused({.repetition_window = 0}, "repetition_window");
}

}  // namespace
}  // namespace rapt::test
