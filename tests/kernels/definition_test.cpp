#include "support/truth/definition.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/cases.h"

// The definition is the judge of everything else; finite differences and hand computation judge it.
namespace rapt::test {
namespace {

Problem problem_of(const Operands& o) { return problem(o.q, o.k, o.v, o.how); }

double loss(const Problem& p, const Doubles& dout) {
  const Doubles out = define(p).out.value;
  double sum = 0;
  for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * dout[i];
  return sum;
}

/// Central differences of the loss in every number of one operand.
void expect_slopes(Problem p, Doubles Problem::*operand, const Doubles& analytic,
                   const Doubles& dout, const std::string& what) {
  constexpr double step = 1e-6;
  ASSERT_EQ(analytic.size(), (p.*operand).size()) << what;
  for (std::size_t i = 0; i < analytic.size(); ++i) {
    double& number = (p.*operand)[i];
    const double before = number;
    if (std::isinf(before)) {
      EXPECT_EQ(analytic[i], 0) << what << " of a hidden pair";
      continue;
    }
    number = before + step;
    const double above = loss(p, dout);
    number = before - step;
    const double below = loss(p, dout);
    number = before;
    const double slope = (above - below) / (2 * step);
    EXPECT_NEAR(analytic[i], slope, 1e-7 + 1e-5 * std::fabs(slope)) << what << "[" << i << "]";
  }
}

void expect_gradients_are_slopes(const Case& c) {
  const Operands operands(c);
  const Problem p = problem_of(operands);
  const Doubles dout = doubles(operands.dout);
  const DefinedGradients d = define_gradients(p, dout);
  const std::string line = c.repro();
  expect_slopes(p, &Problem::q, d.dq.value, dout, "dq " + line);
  expect_slopes(p, &Problem::k, d.dk.value, dout, "dk " + line);
  expect_slopes(p, &Problem::v, d.dv.value, dout, "dv " + line);
  expect_slopes(p, &Problem::slopes, d.dslopes.value, dout, "dslopes " + line);
  expect_slopes(p, &Problem::kerple, d.dkerple.value, dout, "dkerple " + line);
  expect_slopes(p, &Problem::table, d.dtable.value, dout, "dtable " + line);
  expect_slopes(p, &Problem::relative_keys, d.drelative_keys.value, dout, "drelative " + line);
  expect_slopes(p, &Problem::relative_values, d.drelative_values.value, dout, "dvalues " + line);
  expect_slopes(p, &Problem::dense, d.ddense.value, dout, "ddense " + line);
  expect_slopes(p, &Problem::sinks, d.dsinks.value, dout, "dsinks " + line);
}

Case small_case(const std::string& changes) {
  return parse_case("batch=2; heads=2; kv_heads=1; queries=5; keys=7; dim=3; value_dim=2; " +
                    changes);
}

TEST(Definition, GradientsAreTheSlopesOfTheOutput) {
  for (const char* pattern : {"full", "causal", "window(2, 1)", "random(0.4)"})
    expect_gradients_are_slopes(small_case("pattern=" + std::string(pattern)));
}

TEST(Definition, GradientsOfEveryScorePartAreSlopes) {
  for (const std::string& bias : biases()) expect_gradients_are_slopes(small_case("bias=" + bias));
  for (const char* scale : {"dim", "log_n", "1", "-0.3", "0"})
    expect_gradients_are_slopes(small_case("pattern=causal; scale=" + std::string(scale)));
  for (const char* rest : {"softcap=0.7", "sinks=1", "dropout=0.4"})
    expect_gradients_are_slopes(small_case(rest));
}

TEST(Definition, GradientsOfAllScorePartsTogetherAreSlopes) {
  for (const char* dense : {"dense", "dense_row", "dense_keys", "dense_inf"})
    expect_gradients_are_slopes(
        small_case("pattern=causal; scale=log_n; softcap=2; sinks=1; dropout=0.3; "
                   "bias=alibi+t5+shaw+" +
                   std::string(dense)));
}

TEST(Definition, TwoKeysAreALogisticFunctionOfTheirDifference) {
  const std::vector<float> q{2}, k{0.5, -1}, v{3, 7};
  const Shape one{1, 1, 1, 1}, two{1, 1, 2, 1};
  const Attention how{.scale = Scale::none()};
  const Defined d = define(problem(View(q, one), View(k, two), View(v, two), how));
  const double first = 1 / (1 + std::exp(-3.0));
  EXPECT_NEAR(d.out.value[0], 3 * first + 7 * (1 - first), 1e-14);
  EXPECT_NEAR(d.lse.value[0], std::log(std::exp(1.0) + std::exp(-2.0)), 1e-14);
  EXPECT_NEAR(d.largest.value[0], first, 1e-14);
  EXPECT_NEAR(std::sqrt(d.jacobian_square.value[0]), 2 * first * (1 - first), 1e-14);
  EXPECT_NEAR(d.logit_variance.value[0], 2.25, 1e-14);
  EXPECT_NEAR(d.reach.value[0], first, 1e-14);  // the query is at key 1
  EXPECT_NEAR(d.entropy.value[0], -first * std::log(first) - (1 - first) * std::log1p(-first),
              1e-14);
}

TEST(Definition, ASinkTakesProbabilityAndGivesNoValue) {
  const std::vector<float> q{0}, k{1, 1}, v{3, 7};
  const Shape one{1, 1, 1, 1}, two{1, 1, 2, 1};
  const Attention how{.sinks = {0}};
  const Defined d = define(problem(View(q, one), View(k, two), View(v, two), how));
  EXPECT_NEAR(d.out.value[0], 10.0 / 3, 1e-14);
  EXPECT_NEAR(d.lse.value[0], std::log(3.0), 1e-14);
  EXPECT_NEAR(d.sink_mass.value[0], 1.0 / 3, 1e-14);
  EXPECT_NEAR(d.entropy.value[0], std::log(3.0), 1e-14);
  EXPECT_NEAR(std::sqrt(d.jacobian_square.value[0]), std::sqrt(2.0) / 3, 1e-14);
}

TEST(Definition, DropoutBitsAreThoseOfPhilox) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(kept({0.39, 0}, 0, 0, 0), 1 / (1 - 0.39));  // 0x6627e8d5 / 2^32 = 0.399
  EXPECT_EQ(kept({0.40, 0}, 0, 0, 0), 0);
  Index dropped = 0;
  for (Index key = 0; key < 40000; ++key) dropped += kept({0.25, 99}, 3, 5, key) == 0;
  EXPECT_NEAR(static_cast<double>(dropped), 10000, 4 * std::sqrt(40000 * 0.25 * 0.75));
}

TEST(Cases, ALineReproducesItsCase) {
  for (const Case& c : attention_cases()) ASSERT_EQ(parse_case(c.repro()), c) << c.repro();
  EXPECT_THROW(parse_case("keys=seven"), std::invalid_argument);
  EXPECT_THROW(parse_case("kees=7"), std::invalid_argument);
  EXPECT_THROW(parse_case("keys"), std::invalid_argument);
}

}  // namespace
}  // namespace rapt::test
