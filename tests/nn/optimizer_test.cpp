#ifdef RAPT_MODELS
#include "train/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/engine.h"
#include "support/network.h"
#include "support/refused.h"
#include "support/truth/bound.h"

namespace rapt::test {
using namespace detail;
namespace {

Tensor tensor(std::initializer_list<float> numbers) {
  Tensor x({static_cast<Index>(numbers.size())});
  std::copy(numbers.begin(), numbers.end(), x.data());
  return x;
}

// Made by torch 2.13 in float64: AdamW(lr=0.01, betas=(0.9, 0.95), eps=1e-6) with weight_decay 0.1
// for w and 0 for b, three steps of clip_grad_norm_(1.5) and step(), lr divided by the step.
TEST(AdamW, AgreesWithRecordedNumbers) {
  for (const Context& context : every_isa()) {
    Parameter w{.name = "w", .value = tensor({0.5f, -1.25f, 2, 0})};
    Parameter b{.name = "b", .value = tensor({0.25f, -0.75f}), .decays = false};
    Optimizer optimizer({&w, &b},
                        {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.1});
    const Tensor of_w[] = {tensor({0.1f, -0.2f, 0.3f, 1e-4f}), tensor({-0.4f, 0.25f, 1e-3f, 2}),
                           tensor({0.05f, 3, -0.7f, -1e-5f})};
    const Tensor of_b[] = {tensor({1, -2}), tensor({0.5f, 0.25f}), tensor({-0.125f, 4})};
    const double norms[] = {2.2671568119563323, 2.1295541786956256, 5.050556899996277};
    for (int i = 0; i < 3; ++i) {
      w.gradient = of_w[i].clone(), b.gradient = of_b[i].clone();
      const GradientNorm found = gradient_norm(optimizer.parameters(), context);
      EXPECT_NEAR(found.norm, norms[i], 1e-7);
      EXPECT_EQ(found.bad, nullptr);
      optimizer.step(
          {.learning_rate = 0.01 / (i + 1), .gradient_factor = clip_factor(found.norm, 1.5)},
          context);
      EXPECT_SILENT(different_bits("a gradient", w.gradient.numbers(), of_w[i].numbers()));
    }
    const Wide want{0.4932797528324189, -1.2408142728454887, 1.9832823731393772,
                    -0.01543494009993696};
    EXPECT_SILENT(beyond("w", w.value.numbers(), want, {0.5, 1.25, 2, 0.015}, 4));
    EXPECT_SILENT(
        beyond("b", b.value.numbers(), {0.2328974772167006, -0.7374633459432799}, {0.25, 0.75}, 4));
    EXPECT_SILENT(beyond(
        "first", optimizer.state()[0].first.numbers(),
        {-0.018513290870988332, 0.09422918200634146, -0.0046489902568814905, 0.12679210325196488},
        {0.02, 0.1, 0.005, 0.13}, 4));
    EXPECT_SILENT(beyond(
        "second", optimizer.state()[0].second.numbers(),
        {0.00397922550851347, 0.04195626229624577, 0.003938881799916883, 0.09426670455102504},
        {0.004, 0.04, 0.004, 0.1}, 4));
  }
}

/// One step in f64 from f32 numbers.
struct Moved {
  double value, update, first, second;
};
Moved definition(const AdamW& how, const Optimizer::Step& now, Index steps, double value, double g,
                 double first, double second) {
  const double n = static_cast<double>(steps);
  g *= now.gradient_factor;
  first = how.beta1 * first + (1 - how.beta1) * g;
  second = how.beta2 * second + (1 - how.beta2) * g * g;
  const double mean = first / (1 - std::pow(how.beta1, n));
  const double root = std::sqrt(second / (1 - std::pow(how.beta2, n)));
  const double update = now.learning_rate * mean / (root + how.epsilon) +
                        now.learning_rate * how.weight_decay * value;
  return {value - update, update, first, second};
}

// The bound of our design notes: 4 u |update| + u |w|, from any state.
TEST(AdamW, AStepIsWithinItsBoundOfTheDefinition) {
  const AdamW how{.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.1};
  for (const Context& context : every_isa())
    for (const Index count : {1, 7, 100000}) {
      Parameter p = random_parameter("p", {count}, 1, 0.1);
      Optimizer optimizer({&p}, how);
      for (Index step = 1; step <= 4; ++step) {
        const Tensor before = p.value.clone();
        Tensor first({count}), second({count});
        if (step > 1) {
          first = optimizer.state()[0].first.clone();
          second = optimizer.state()[0].second.clone();
        }
        p.gradient = random_tensor({count}, static_cast<std::uint64_t>(step));
        const Optimizer::Step now{.learning_rate = 0.03, .gradient_factor = 0.7};
        optimizer.step(now, context);
        Wide want, size;
        for (Index i = 0; i < count; ++i) {
          const auto wide = [&](const Tensor& x) { return static_cast<double>(x.data()[i]); };
          const Moved moved =
              definition(how, now, step, wide(before), wide(p.gradient), wide(first), wide(second));
          want.push_back(moved.value);
          size.push_back(4 * std::abs(moved.update) + std::abs(wide(before)));
        }
        EXPECT_SILENT(beyond("step on " + context.isa(), p.value.numbers(), want, size, 1));
      }
    }
}

TEST(AdamW, SameBitsForAnyNumberOfThreads) {
  EXPECT_SILENT(depends_on_threads([&](const Context& context) {
    Parameter p = random_parameter("p", {333, 777}, 1);
    Optimizer optimizer({&p}, {});
    p.gradient = random_tensor({333, 777}, 2);
    const double norm = gradient_norm(optimizer.parameters(), context).norm;
    optimizer.step({.learning_rate = 0.1, .gradient_factor = clip_factor(norm, 1)}, context);
    std::vector<Tensor> all;
    all.push_back(std::move(p.value));
    all.push_back(optimizer.state()[0].second.clone());
    all.push_back(tensor({static_cast<float>(norm), static_cast<float>(norm - 500)}));
    return all;
  }));
}

TEST(AdamW, WithoutAGradientAParameterRests) {
  Parameter a = random_parameter("a", {5}, 1), b = random_parameter("b", {5}, 2);
  const Tensor before = a.value.clone();
  Optimizer optimizer({&a, &b}, {});
  b.gradient = random_tensor({5}, 3);
  optimizer.step({.learning_rate = 1e-3});
  EXPECT_SILENT(different_bits("a", a.value.numbers(), before.numbers()));
  EXPECT_EQ(optimizer.state()[0].steps, 0);
  EXPECT_EQ(optimizer.state()[1].steps, 1);
  clear_gradients(optimizer.parameters());
  EXPECT_TRUE(b.gradient.empty());
}

TEST(AdamW, GoesOnFromARestoredState) {
  const auto steps = [](Optimizer& optimizer, Parameter& p, int first, int count) {
    for (int i = first; i < first + count; ++i) {
      p.gradient = random_tensor({9}, static_cast<std::uint64_t>(i));
      optimizer.step({.learning_rate = 1e-3});
    }
  };
  Parameter through = random_parameter("p", {9}, 1), halted = random_parameter("p", {9}, 1);
  Optimizer one({&through}, {}), two({&halted}, {}), three({&halted}, {});
  steps(one, through, 0, 6);
  steps(two, halted, 0, 3);
  std::vector<AdamState> state;
  for (const AdamState& s : two.state())
    state.push_back({s.first.clone(), s.second.clone(), s.steps});
  three.restore(std::move(state));
  steps(three, halted, 3, 3);
  EXPECT_SILENT(different_bits("p", halted.value.numbers(), through.value.numbers()));
}

TEST(GradientNorm, NamesTheFirstThatIsNotFinite) {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY})
    for (const Context& context : every_isa()) {
      Parameter a = random_parameter("a", {500}, 1), b = random_parameter("b", {70000}, 2);
      Parameter c = random_parameter("c", {3}, 3);
      for (Parameter* p : {&a, &b, &c}) p->gradient = random_tensor(p->value.shape(), 4);
      Parameter* all[] = {&a, &b, &c};
      EXPECT_EQ(gradient_norm(all, context).bad, nullptr);
      b.gradient.data()[69999] = bad;
      c.gradient.data()[0] = bad;
      const GradientNorm found = gradient_norm(all, context);
      ASSERT_EQ(found.bad, &b);
      EXPECT_FALSE(std::isfinite(found.norm));
    }
}

TEST(GradientNorm, IsThatOfAllNumbersHoweverLarge) {
  for (const Context& context : every_isa()) {
    Parameter a = random_parameter("a", {100, 999}, 1), b = random_parameter("b", {5}, 2);
    a.gradient = random_tensor({100, 999}, 3), b.gradient = tensor({1e30f, -2e30f, 0, 3, 1e-30f});
    Parameter none = random_parameter("none", {5}, 2);
    Parameter* one[] = {&a, &none};
    double squares = 0;
    for (const float g : a.gradient.numbers()) squares += std::pow(static_cast<double>(g), 2);
    EXPECT_NEAR(gradient_norm(one, context).norm, std::sqrt(squares), 1e-11 * std::sqrt(squares));
    Parameter* both[] = {&a, &b};
    EXPECT_NEAR(gradient_norm(both, context).norm, std::sqrt(5.0) * static_cast<double>(1e30f),
                1e18);
  }
}

TEST(GradientNorm, ClipsAsPyTorchDoes) {
  EXPECT_EQ(clip_factor(0.5, 1), 1);
  EXPECT_EQ(clip_factor(1 - 1e-6, 1), 1);
  EXPECT_DOUBLE_EQ(clip_factor(4, 1), 1 / 4.000001);
  EXPECT_EQ(clip_factor(1e9, {}), 1);
  expect_refused([] { clip_factor(1, -1); }, {"limit is -1"});
  expect_refused([] { clip_factor(1, 0); }, {"limit is 0"});
}

TEST(AdamW, RefusesWhatMakesNoSense) {
  Parameter p = random_parameter("twice", {5}, 1);
  const auto refused = [&](const AdamW& how, const std::string& word) {
    expect_refused([&] { Optimizer({&p}, how); }, {"optimizer", word});
  };
  refused({.beta1 = 1}, "beta is 1");
  refused({.beta2 = -0.5}, "beta is -0.5");
  refused({.epsilon = -1}, "epsilon is -1");
  refused({.weight_decay = std::nan("")}, "weight_decay is nan");
  expect_refused([&] { Optimizer({&p, &p}, {}); }, {"twice is given twice"});
  Optimizer optimizer({&p}, {});
  expect_refused([&] { optimizer.step({.learning_rate = INFINITY}); }, {"learning rate is inf"});
  expect_refused([&] { optimizer.step({.learning_rate = -1}); }, {"learning rate is -1"});
  p.gradient = Tensor({4});
  expect_refused([&] { optimizer.step({.learning_rate = 1}); },
                 {"gradient of twice", "[4]", "[5]"});
  expect_refused([&] { optimizer.restore({}); }, {"state of 0 parameters, expected 1"});
  std::vector<AdamState> state(1);
  state[0] = {Tensor({5}), Tensor({4}), 1};
  expect_refused([&] { optimizer.restore(std::move(state)); }, {"moment of twice", "[4]", "[5]"});
}

}  // namespace
}  // namespace rapt::test
#endif
