#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "support/engine.h"
#include "support/truth/bound.h"
#include "support/truth/definition.h"

namespace rapt::test {
namespace {

TEST(Stats, AreWithinTheBoundOfTheDefinition) {
  std::size_t number = 0;
  for (const Case& c : attention_cases()) {
    if (number++ % 3 != 0) continue;
    Operands o(c);
    o.how.stats = true;
    const Defined want = define(problem(o.q, o.k, o.v, o.how));
    for (const Context& context : every_isa())
      EXPECT_WITHIN_BOUND(attend(o.q, o.k, o.v, o.how, context), want, where(c, context));
  }
}

TEST(Stats, HaveTheShapeOfTheRows) {
  Small small({2, 6, 5, 8}, {2, 3, 9, 8});
  small.how.stats = true;
  const Attended got = attend(small.q, small.k, small.v, small.how);
  ASSERT_TRUE(got.stats.has_value());
  for (Tensor Stats::*part : {&Stats::entropy, &Stats::largest, &Stats::logit_variance,
                              &Stats::jacobian_norm, &Stats::reach, &Stats::sink_mass})
    EXPECT_EQ(((*got.stats).*part).shape(), (Shape{2, 6, 5}));
}

TEST(Stats, OfAUniformRowAreTheClosedForms) {
  for (const Context& context : every_isa()) {
    Small small({1, 1, 4, 8}, {1, 1, 512, 8});
    for (float& number : small.q.numbers()) number = 0;
    small.how.stats = true;
    const Stats stats = *attend(small.q, small.k, small.v, small.how, context).stats;
    for (std::size_t row = 0; row < 4; ++row) {
      EXPECT_NEAR(stats.entropy.numbers()[row], std::log(512.0), 2e-6);
      EXPECT_NEAR(stats.largest.numbers()[row], 1.0 / 512, 1e-9);
      EXPECT_NEAR(stats.jacobian_norm.numbers()[row], 0.0441510, 1e-6);
      EXPECT_EQ(stats.logit_variance.numbers()[row], 0);
      EXPECT_NEAR(stats.sink_mass.numbers()[row], 1.0 / 512, 1e-9);
      double reach = 0;  // query row is at 508 + row
      for (int key = 0; key < 512; ++key)
        reach += std::abs(508 + static_cast<int>(row) - key) / 512.0;
      EXPECT_NEAR(stats.reach.numbers()[row], reach, 1e-3);
    }
  }
}

TEST(Stats, OfASaturatedRowAreFiniteAndSmall) {
  for (const Context& context : every_isa()) {
    Small small({1, 1, 6, 8}, {1, 1, 100, 8});
    for (float& number : small.q.numbers()) number *= 1000;
    small.how.stats = true;
    const Stats stats = *attend(small.q, small.k, small.v, small.how, context).stats;
    for (std::size_t row = 0; row < 6; ++row) {
      EXPECT_NEAR(stats.largest.numbers()[row], 1, 1e-6) << context.isa();
      EXPECT_NEAR(stats.entropy.numbers()[row], 0, 1e-3) << context.isa();
      EXPECT_NEAR(stats.jacobian_norm.numbers()[row], 0, 1e-3) << context.isa();  // not NaN
    }
  }
}

/// Mean of a statistic over independent key sets (items), and the standard error of that mean.
struct Estimate {
  double mean, error;
};

Estimate estimate(const Tensor& rows, const std::function<double(double)>& of) {
  const Index items = rows.shape()[0], each = rows.elements() / items;
  double sum = 0, squares = 0;
  for (Index item = 0; item < items; ++item) {
    double mean = 0;
    for (Index row = 0; row < each; ++row)
      mean += of(rows.numbers()[item * each + row]) / static_cast<double>(each);
    sum += mean, squares += mean * mean;
  }
  const double mean = sum / static_cast<double>(items);
  const double variance = squares / static_cast<double>(items) - mean * mean;
  return {mean, std::sqrt(variance / static_cast<double>(items))};
}

void expect_mean(
    const Tensor& rows, double expected, const std::string& what,
    const std::function<double(double)>& of = [](double x) { return x; }) {
  const Estimate got = estimate(rows, of);
  EXPECT_NEAR(got.mean, expected, 4.5 * got.error + 1e-4 * std::fabs(expected)) << what;
}

double squared(double x) { return x * x; }
double inverse(double x) { return 1 / x; }

/// Normal q and k: what spec-positions A7 computed by quadrature for 512 keys.
struct NormalRow {
  Index dim;
  Scale scale;
  double entropy, jacobian, inverse_largest, variance;
};

TEST(Stats, OfNormalQueriesAndKeysMatchTheTableOfExpectedValues) {
  const double finite = 511.0 / 512;  // the population variance of 512 logits
  for (const NormalRow& row : {NormalRow{16, Scale::none(), 2.2019, 0.29266, 3.092, 16 * finite},
                               {64, Scale::none(), 0.8331, 0.28876, 1.575, 64 * finite},
                               {16, {}, 5.7427, 0.07310, 47.16, finite},
                               {64, {}, 5.7421, 0.07196, 43.57, finite},
                               {16, Scale::inverse_dim(), 6.2071, 0.04555, 252.6, finite / 16},
                               {64, Scale::inverse_dim(), 6.2305, 0.04450, 353.8, finite / 64}}) {
    Small small({250, 1, 8, row.dim}, {250, 1, 512, row.dim}, 7);
    small.how.scale = row.scale;
    small.how.stats = true;
    const Stats stats = *attend(small.q, small.k, small.v, small.how).stats;
    const std::string what = "dim " + std::to_string(row.dim);
    expect_mean(stats.entropy, row.entropy, "entropy, " + what);
    expect_mean(stats.jacobian_norm, row.jacobian * row.jacobian, "jacobian^2, " + what, squared);
    expect_mean(stats.largest, row.inverse_largest, "1 / largest, " + what, inverse);
    expect_mean(stats.logit_variance, row.variance, "logit variance, " + what);
  }
}

/// Operands whose logits are independent N(0, sigma^2): q has the length sigma * sqrt(dim).
Small normal_logits(Index keys, double sigma) {
  Small small({300, 1, 1, 16}, {300, 1, keys, 16}, 11);
  for (Index item = 0; item < 300; ++item) {
    float* q = small.q.view().row(item, 0, 0);
    double square = 0;
    for (Index c = 0; c < 16; ++c) square += double{q[c]} * q[c];
    for (Index c = 0; c < 16; ++c) q[c] = static_cast<float>(q[c] * sigma * std::sqrt(16 / square));
  }
  small.how.stats = true;
  return small;
}

struct FixedRow {
  Index keys;
  double sigma, lse, entropy, jacobian;
};

TEST(Stats, OfNormalLogitsMatchTheTableOfExpectedValues) {
  for (const FixedRow& row : {FixedRow{64, 1, 4.64594, 3.68475, 0.18461},
                              {64, 4, 9.97770, 1.30814, 0.31747},
                              {512, 0.5, 6.36305, 6.11367, 0.04996},
                              {512, 2, 8.20460, 4.39014, 0.17810},
                              {512, 8, 24.72567, 0.81865, 0.28849},
                              {4096, 1, 8.81756, 7.81822, 0.02570}}) {
    const Small small = normal_logits(row.keys, row.sigma);
    const Attended got = attend(small.q, small.k, small.v, small.how);
    const std::string what = std::to_string(row.keys) + " keys, sigma " + std::to_string(row.sigma);
    expect_mean(got.lse, row.lse, "lse, " + what);
    expect_mean(got.stats->entropy, row.entropy, "entropy, " + what);
    expect_mean(got.stats->jacobian_norm, row.jacobian * row.jacobian, "jacobian^2, " + what,
                squared);
  }
}

TEST(Stats, LogNScaleKeepsTheEntropyWhereTheoryPromisesIt) {
  struct Row {
    Index keys;
    double constant, log_n;
  };
  for (const Row& row : {Row{128, 2.6330, 3.2639}, {512, 3.6366, 3.6366}, {1024, 4.1877, 3.7520}}) {
    Small small = normal_logits(row.keys, 2.4977);
    const std::string what = std::to_string(row.keys) + " keys";
    expect_mean(attend(small.q, small.k, small.v, small.how).stats->entropy, row.constant, what);
    small.how.scale = Scale::log_n();
    expect_mean(attend(small.q, small.k, small.v, small.how).stats->entropy, row.log_n, what);
  }
}

}  // namespace
}  // namespace rapt::test
