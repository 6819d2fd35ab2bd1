#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "rapt/nn/functional.h"
#include "support/engine.h"
#include "support/network.h"
#include "support/refused.h"
#include "support/truth/bound.h"

namespace rapt::test {
namespace {

/// A loss to compute: x [rows, width], head [vocab_size, width].
struct LossProblem {
  LossProblem(Index rows, Index width_, Index entries_)
      : width(width_),
        entries(entries_),
        x(random_tensor({rows, width_}, 1)),
        head(random_parameter("head", {entries_, width_}, 2)) {
    for (Index row = 0; row < rows; ++row)
      targets.push_back(static_cast<std::int32_t>(row % 4 == 1 ? -1 : row * 7 % entries_));
  }

  Index width, entries;
  Tensor x;
  Parameter head;
  std::vector<std::int32_t> targets;
  CrossEntropy how = {};

  Index counted() const {
    return std::count_if(targets.begin(), targets.end(), [](std::int32_t t) { return t >= 0; });
  }
  double divisor() const { return how.divisor.value_or(static_cast<double>(counted())); }
};

/// Logits of one row, and the size of the terms of the largest.
struct Logits {
  Wide of;
  double size = 0;
};
Logits logits(const LossProblem& p, const Wide& x, const Wide& head, std::size_t row) {
  Logits result;
  const auto width = static_cast<std::size_t>(p.width);
  for (Index entry = 0; entry < p.entries; ++entry) {
    double sum = 0, size = 0;
    for (std::size_t i = 0; i < width; ++i) {
      const double term = x[row * width + i] * head[static_cast<std::size_t>(entry) * width + i];
      sum += term, size += std::abs(term);
    }
    result.of.push_back(sum);
    result.size = std::max(result.size, size);
  }
  return result;
}

double log_of_sum(const Wide& l) {
  const double most = *std::max_element(l.begin(), l.end());
  double sum = 0;
  for (const double number : l) sum += std::exp(number - most);
  return most + std::log(sum);
}

/// The loss as PyTorch defines it: (1 - e) times that of the target, and e times the mean of all.
double definition(const LossProblem& p, const Wide& x, const Wide& head) {
  double total = 0;
  for (std::size_t row = 0; row < p.targets.size(); ++row) {
    if (p.targets[row] < 0) continue;
    const Wide l = logits(p, x, head, row).of;
    const double sum = log_of_sum(l);
    for (std::size_t entry = 0; entry < l.size(); ++entry) {
      const bool wanted = static_cast<std::int32_t>(entry) == p.targets[row];
      total += (sum - l[entry]) * ((wanted ? 1 - p.how.label_smoothing : 0) +
                                   p.how.label_smoothing / static_cast<double>(l.size()));
    }
  }
  return total / p.divisor();
}

/// What errors are measured by: a logit's error is that of its terms, and enters an exponent.
struct LossSizes {
  double loss = 0;
  Wide dx, dhead;
};
LossSizes sizes_of(const LossProblem& p) {
  const Wide x = widened(p.x), head = widened(p.head.value);
  LossSizes sizes{0, Wide(x.size()), Wide(head.size())};
  const auto width = static_cast<std::size_t>(p.width);
  for (std::size_t row = 0; row < p.targets.size(); ++row) {
    if (p.targets[row] < 0) continue;
    const Logits l = logits(p, x, head, row);
    const double sum = log_of_sum(l.of), size = (1 + l.size) / p.divisor();
    sizes.loss += size;
    for (std::size_t entry = 0; entry < l.of.size(); ++entry) {
      const bool wanted = static_cast<std::int32_t>(entry) == p.targets[row];
      const double q = (wanted ? 1 : 0) + p.how.label_smoothing / static_cast<double>(p.entries);
      const double share = (std::exp(l.of[entry] - sum) + q) * size;
      for (std::size_t i = 0; i < width; ++i) {
        sizes.dx[row * width + i] += share * std::abs(head[entry * width + i]);
        sizes.dhead[entry * width + i] += share * std::abs(x[row * width + i]);
      }
    }
  }
  return sizes;
}

void expect_definition(LossProblem& p, const Context& context, const std::string& where) {
  Tape tape(Tape::Mode::train, context);
  const Variable in = tape.input(p.x.clone(), true);
  const TokenLoss got = cross_entropy(tape, in, p.head, p.targets, p.how);
  const Wide x = widened(p.x), head = widened(p.head.value);
  const LossSizes sizes = sizes_of(p);
  const double want = definition(p, x, head);
  EXPECT_SILENT(beyond("loss of " + where, got.loss.value().numbers(), {want}, {sizes.loss}, 4));
  EXPECT_NEAR(got.total / p.divisor(), want, 4 * u32 * sizes.loss) << where;
  EXPECT_EQ(got.counted, p.counted());
  p.head.gradient = {};
  tape.backward(got.loss);
  EXPECT_SILENT(beyond("dx of " + where, in.gradient().numbers(),
                       differences([&](const Wide& v) { return definition(p, v, head); }, x),
                       sizes.dx, 6));
  EXPECT_SILENT(beyond("dhead of " + where, p.head.gradient.numbers(),
                       differences([&](const Wide& v) { return definition(p, x, v); }, head),
                       sizes.dhead, 6));
}

TEST(CrossEntropy, IsTheDefinitionAndItsGradientThatOfTheDefinition) {
  for (const CrossEntropy& how :
       {CrossEntropy{}, CrossEntropy{.label_smoothing = 0.1, .chunk = 1},
        CrossEntropy{.divisor = 3, .chunk = 2}, CrossEntropy{.label_smoothing = 1, .chunk = 3}})
    in_every_context([&](const Context& context) {
      LossProblem p(7, 5, 11);
      p.how = how;
      expect_definition(p, context, "chunk " + std::to_string(how.chunk) + " on " + context.isa());
    });
}

TEST(CrossEntropy, OddShapes) {
  for (const auto& [rows, width, entries] :
       {std::array<Index, 3>{1, 1, 1}, {2, 1, 3}, {3, 9, 2}, {1, 3, 70}})
    for (const Context& context : every_isa()) {
      LossProblem p(rows, width, entries);
      p.how.label_smoothing = 0.2;
      expect_definition(p, context, to_string(p.head.value.shape()) + " on " + context.isa());
    }
}

// Made by torch 2.13 in float64: cross_entropy(x @ head.T, targets, label_smoothing=...) with
// x[i][j] = sin(5 i + j), head[e][j] = cos(4 e + j), both rounded to f32, targets 2 -100 0 5 3.
TEST(CrossEntropy, AgreesWithRecordedNumbers) {
  struct Recorded {
    double smoothing, loss, dx[4], dhead[4];  // of x's row 0 and head's row 5
  };
  for (const Recorded& r : {Recorded{0,
                                     2.268267403951013,
                                     {0.008615214, 0.305039343, 0.321011703, 0.04184739},
                                     {-0.112237413, 0.017884163, 0.131563116, 0.124283545}},
                            Recorded{0.1,
                                     2.2913634632567788,
                                     {0.002914659, 0.282271969, 0.302109728, 0.044189203},
                                     {-0.100226933, 0.009060609, 0.110017863, 0.1098252}}}) {
    LossProblem p(5, 4, 6);
    for (Index i = 0; i < 20; ++i)
      p.x.data()[i] = static_cast<float>(std::sin(static_cast<double>(i / 4 * 5 + i % 4)));
    for (Index i = 0; i < 24; ++i)
      p.head.value.data()[i] = static_cast<float>(std::cos(static_cast<double>(i / 4 * 4 + i % 4)));
    p.targets = {2, -100, 0, 5, 3};
    p.how.label_smoothing = r.smoothing;
    Tape tape;
    const Variable in = tape.input(p.x.clone(), true);
    const TokenLoss got = cross_entropy(tape, in, p.head, p.targets, p.how);
    EXPECT_NEAR(got.total / 4, r.loss, 1e-6);
    tape.backward(got.loss);
    for (Index i = 0; i < 4; ++i) {
      EXPECT_NEAR(in.gradient().data()[i], r.dx[i], 2e-7);
      EXPECT_NEAR(p.head.gradient.data()[20 + i], r.dhead[i], 2e-7);
      EXPECT_EQ(in.gradient().data()[4 + i], 0);  // its target does not count
    }
  }
}

TEST(CrossEntropy, GradientsScaleAndAddUp) {
  LossProblem once(6, 5, 9), more(6, 5, 9);
  const auto run = [](LossProblem& p, double factor) {
    Tape tape;
    const Variable in = tape.input(p.x.clone(), true);
    tape.backward(scale(tape, cross_entropy(tape, in, p.head, p.targets).loss, factor));
    return in.gradient().clone();
  };
  const Tensor dx = run(once, 1), half = run(more, 0.5);
  for (Index i = 0; i < dx.elements(); ++i) EXPECT_EQ(half.data()[i], dx.data()[i] / 2);
  run(more, 2);
  for (Index i = 0; i < once.head.gradient.elements(); ++i)
    EXPECT_FLOAT_EQ(more.head.gradient.data()[i], once.head.gradient.data()[i] * 2.5f);
}

TEST(CrossEntropy, CountsWhatIsGuessedAndKeepsNothingThatIsNotAskedFor) {
  LossProblem p(4, 3, 3);
  for (float& number : p.head.value.numbers()) number = 0;
  for (Index i = 0; i < 3; ++i) p.head.value.data()[i * 4] = 1;  // the logits are x
  const float x[] = {0, 2, 1, 3, 3, 0, 1, 1, 1, -5, -6, -7};
  std::copy_n(x, 12, p.x.data());
  p.targets = {1, 1, 0, -1};  // right; the first of equals would be 0; the first of equals
  Tape tape(Tape::Mode::forward);
  const TokenLoss got = cross_entropy(tape, tape.input(p.x.clone(), true), p.head, p.targets);
  EXPECT_EQ(got.counted, 3);
  EXPECT_EQ(got.correct, 2);
  EXPECT_TRUE(p.head.gradient.empty());
  EXPECT_NEAR(got.total, 3 * definition(p, widened(p.x), widened(p.head.value)), 1e-6);
}

TEST(CrossEntropy, FarLogitsStayFiniteAndANanStaysInItsRow) {
  for (const Context& context : every_isa()) {
    LossProblem p(6, 5, 9);
    p.targets = {0, 1, 2, 3, 4, 5};
    for (Index i = 0; i < 5; ++i) p.x.data()[i] *= 1e4f;
    expect_definition(p, context, "far logits on " + context.isa());
    p.x.data()[3 * 5 + 2] = std::nanf("");
    Tape tape(Tape::Mode::train, context);
    const Variable in = tape.input(p.x.clone(), true);
    const TokenLoss got = cross_entropy(tape, in, p.head, p.targets);
    EXPECT_TRUE(std::isnan(got.total));
    EXPECT_TRUE(std::isnan(got.loss.value().data()[0]));
    tape.backward(got.loss);
    for (Index i = 0; i < 30; ++i)
      EXPECT_EQ(std::isnan(in.gradient().data()[i]), i / 5 == 3) << i << " on " << context.isa();
  }
}

TEST(CrossEntropy, NothingCounts) {
  for (const Index rows : {0, 3}) {
    LossProblem p(rows, 4, 5);
    std::fill(p.targets.begin(), p.targets.end(), -100);
    Tape tape;
    const TokenLoss got = cross_entropy(tape, tape.input(p.x.clone(), true), p.head, p.targets);
    EXPECT_EQ(got.counted, 0);
    EXPECT_EQ(got.total, 0);
    EXPECT_EQ(got.loss.value().data()[0], 0);
    tape.backward(got.loss);
    EXPECT_TRUE(p.head.gradient.empty());
  }
}

TEST(CrossEntropy, SameBitsForAnyNumberOfThreads) {
  EXPECT_SILENT(depends_on_threads([&](const Context& context) {
    LossProblem p(90, 13, 901);
    p.how = {.label_smoothing = 0.1, .chunk = 64};
    Tape tape(Tape::Mode::train, context);
    const Variable in = tape.input(p.x.clone(), true);
    const TokenLoss got = cross_entropy(tape, in, p.head, p.targets, p.how);
    tape.backward(got.loss);
    std::vector<Tensor> all;
    all.push_back(got.loss.value().clone());
    all.push_back(in.gradient().clone());
    all.push_back(std::move(p.head.gradient));
    return all;
  }));
}

TEST(CrossEntropy, RefusesWhatDisagrees) {
  LossProblem p(4, 3, 5);
  Tape tape;
  const Variable in = tape.input(p.x.clone());
  const auto refused = [&](const CrossEntropy& how, const std::vector<std::string>& words) {
    expect_refused([&] { cross_entropy(tape, in, p.head, p.targets, how); }, words);
  };
  refused({.label_smoothing = 1.5}, {"cross_entropy", "label_smoothing is 1.5", "0 to 1"});
  refused({.divisor = -1}, {"divisor is -1"});
  refused({.divisor = 0}, {"divisor is 0"});
  refused({.divisor = INFINITY}, {"divisor is inf"});
  refused({.chunk = 0}, {"chunk is 0", "at least 1"});
  p.targets[2] = 5;
  refused({}, {"target 2 is 5", "head has 5 rows"});
  p.targets.resize(3);
  refused({}, {"3 targets for 4 rows"});
  Parameter narrow = random_parameter("narrow", {5, 2}, 1);
  expect_refused([&] { cross_entropy(tape, in, narrow, p.targets); },
                 {"narrow", "[5, 2]", "[vocab_size, 3]"});
}

}  // namespace
}  // namespace rapt::test
