#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "support/cases.h"
#include "support/engine.h"
#include "support/truth/bound.h"
#include "support/truth/definition.h"

namespace rapt::test {
namespace {

/// Says how close to the bound everything came once all tests have run, and fails if the tighter
/// bar was missed by more than a few elements in ten thousand.
class PrintWorst : public ::testing::Environment {
  void TearDown() override {
    std::cout << worst_report();
    std::cout << "share of elements beyond " << Bar::usual << " units: " << unusual_share() << '\n';
    EXPECT_LE(unusual_share(), 1e-3);
  }
};
[[maybe_unused]] const auto* const print_worst =
    ::testing::AddGlobalTestEnvironment(new PrintWorst);

void expect_forward(const Case& c) {
  const Operands o(c);
  const Defined want = define(problem(o.q, o.k, o.v, o.how));
  for (const Context& context : every_isa())
    EXPECT_WITHIN_BOUND(attend(o.q, o.k, o.v, o.how, context), want, where(c, context));
}

TEST(Attend, IsWithinTheBoundOfTheDefinitionOnEveryIsa) {
  for (const Case& c : attention_cases()) expect_forward(c);
}

TEST(SlowAttend, StaysWithinTheBoundUpToAMillionKeys) {
  for (const Case& c : long_cases()) expect_forward(c);
}

TEST(Attend, AnswersInTheShapeOfTheQueries) {
  const Small small({2, 6, 5, 8}, {2, 3, 9, 8});
  const Tensor v = random_tensor({2, 3, 9, 4}, 5);
  const Attended got = attend(small.q, small.k, v);
  EXPECT_EQ(got.out.shape(), (Shape{2, 6, 5, 4}));
  EXPECT_EQ(got.lse.shape(), (Shape{2, 6, 5}));
  EXPECT_EQ(got.rows.max.size(), 60u);
  EXPECT_EQ(got.rows.sum.size(), 60u);
  EXPECT_FALSE(got.stats.has_value());
}

TEST(Attend, ASharedPlanGivesTheSameBits) {
  Small small({2, 4, 100, 16}, {2, 4, 170, 16});
  small.how.pattern = causal() & window(70, 0);
  const Answer without = small.answer();
  small.how.plan = std::make_shared<Plan>(small.how.pattern, Lengths{100, 170});
  const Answer with = small.answer();
  EXPECT_SAME_BITS(with.forward, without.forward);
  EXPECT_SAME_BITS(with.backward, without.backward);
}

/// Attention the way a textbook writes it, every number f32, sums from left to right.
std::vector<float> naive(const Operands& o) {
  const Index group = o.q.heads() / o.k.heads(), dim = o.q.dim(), value_dim = o.v.dim();
  std::vector<float> out;
  for (Index row = 0; row < o.q.batch() * o.q.heads() * o.q.tokens(); ++row) {
    const Index query = row % o.q.tokens(), head = row / o.q.tokens() % o.q.heads();
    const Index item = row / o.q.tokens() / o.q.heads();
    std::vector<float> p(static_cast<std::size_t>(o.k.tokens())), sum_v(value_dim);
    float max = -INFINITY, sum = 0;
    for (Index key = 0; key < o.k.tokens(); ++key) {
      float dot = 0;
      for (Index c = 0; c < dim; ++c)
        dot += o.q.row(item, head, query)[c] * o.k.row(item, head / group, key)[c];
      p[key] = dot / std::sqrt(static_cast<float>(dim));
      max = std::max(max, p[key]);
    }
    for (Index key = 0; key < o.k.tokens(); ++key) {
      sum += p[key] = std::exp(p[key] - max);
      for (Index t = 0; t < value_dim; ++t)
        sum_v[t] += p[key] * o.v.row(item, head / group, key)[t];
    }
    for (const float number : sum_v) out.push_back(number / sum);
  }
  return out;
}

double rms_error(std::span<const float> got, const Doubles& want) {
  double sum = 0;
  for (std::size_t i = 0; i < want.size(); ++i) sum += std::pow(got[i] - want[i], 2);
  return std::sqrt(sum / static_cast<double>(want.size()));
}

TEST(Attend, ErrsNoMoreThanNaiveF32OnAverage) {
  for (const Context& context : every_isa()) {
    double log_sum = 0;
    int cases = 0;
    for (const Index length : {33, 64, 129, 1000})
      for (const char* inputs : {"normal", "uniform", "same_sign", "large", "offset"})
        for (const Index dim : {16, 64, 80}) {
          Case c;
          c.queries = 9, c.keys = length, c.dim = dim, c.value_dim = dim, c.inputs = inputs;
          const Operands o(c);
          const Doubles want = define(problem(o.q, o.k, o.v)).out.value;
          const double ours = rms_error(attend(o.q, o.k, o.v, {}, context).out.numbers(), want);
          const double ratio = ours / rms_error(naive(o), want);
          EXPECT_LE(ratio, 5) << where(c, context);
          log_sum += std::log(ratio), ++cases;
        }
    EXPECT_LE(std::exp(log_sum / cases), 1.0) << context.isa();
  }
}

TEST(Attend, ExplainNamesTheIsaTheThreadsAndTheTiles) {
  for (const std::string& isa : supported_isas()) {
    const std::string words =
        explain({1, 8, 128, 64}, {1, 8, 128, 64}, {1, 8, 128, 64}, {}, Type::f32, Context(2, isa));
    EXPECT_NE(words.find(isa), std::string::npos) << words;
    const std::size_t threads = words.find("threads");
    ASSERT_NE(threads, std::string::npos) << words;
    EXPECT_NE(words.find('2', threads), std::string::npos) << words;
    EXPECT_NE(words.find("64"), std::string::npos) << words;
  }
}

}  // namespace
}  // namespace rapt::test
