#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "rapt/positions.h"
#include "rapt/rope.h"
#include "support/engine.h"
#include "support/truth/bound.h"

// What attention is known for, shown by the engine itself.
namespace rapt::test {
namespace {

constexpr Index length = 150, width = 16;

/// Token i of the result is token order[i] of x.
Tensor reordered(const Tensor& x, const std::vector<Index>& order) {
  Tensor y(x.shape());
  for (Index head = 0; head < x.shape()[1]; ++head)
    for (Index i = 0; i < length; ++i)
      for (Index c = 0; c < width; ++c)
        at(y, 0, head, i, c) =
            x.data()[(head * length + order[static_cast<std::size_t>(i)]) * width + c];
  return y;
}

std::vector<Index> shuffled() {
  std::vector<Index> order(length);
  std::iota(order.begin(), order.end(), Index{0});
  Random random(7);
  for (Index i = length - 1; i > 0; --i)
    std::swap(order[static_cast<std::size_t>(i)],
              order[static_cast<std::size_t>(random.below(i + 1))]);
  return order;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.numbers().size(); ++i)
    largest = std::max(largest, std::fabs(static_cast<double>(a.numbers()[i]) -
                                          static_cast<double>(b.numbers()[i])));
  return largest;
}

/// How far attention of shuffled tokens is from shuffled attention.
template <class Prepare>
double broken_by(const Attention& how, const Prepare& prepare) {
  const std::vector<Index> order = shuffled();
  const auto attended = [&](const Tensor& x) {
    const Tensor ready = prepare(x);
    return attend(ready, ready, x, how).out;
  };
  const Tensor x = random_tensor({1, 2, length, width}, 1);
  return largest_difference(attended(reordered(x, order)), reordered(attended(x), order));
}

Tensor as_it_is(const Tensor& x) { return x.clone(); }

TEST(Facts, WithoutPositionsAttentionDoesNotKnowTheOrder) {
  EXPECT_LT(broken_by({}, as_it_is), 2e-6);
  EXPECT_LT(broken_by({.softcap = 3}, as_it_is), 2e-6);
}

TEST(Facts, EveryPositionalSchemeTellsTheOrder) {
  constexpr double clearly = 0.01;
  const Tensor table = random_tensor({32, 2}, 3), relative = random_tensor({9, width}, 4);
  EXPECT_GT(broken_by({.pattern = causal()}, as_it_is), clearly);
  EXPECT_GT(broken_by({.bias = alibi(2)}, as_it_is), clearly);
  EXPECT_GT(broken_by({.bias = t5_bias(table)}, as_it_is), clearly);
  EXPECT_GT(broken_by({.bias = relative_keys(relative)}, as_it_is), clearly);
  const Rope rope({.dim = width});
  EXPECT_GT(broken_by({},
                      [&](const Tensor& x) {
                        Tensor turned = x.clone();
                        rope.apply(turned, {});
                        return turned;
                      }),
            clearly);
}

/// What one token of the last layer takes from each token of the input.
std::vector<double> reach_of(const Pattern& pattern, int layers, Index token) {
  const Attention how{.pattern = pattern};
  std::vector<Tensor> inputs;
  std::vector<Attended> outputs;
  inputs.push_back(random_tensor({1, 1, length, width}, 1));
  for (int layer = 0; layer < layers; ++layer) {
    outputs.push_back(attend(inputs.back(), inputs.back(), inputs.back(), how));
    inputs.push_back(outputs.back().out.clone());
  }
  Tensor gradient({1, 1, length, width});
  for (Index c = 0; c < width; ++c) at(gradient, 0, 0, token, c) = 1;
  for (int layer = layers - 1; layer >= 0; --layer) {
    const Tensor& x = inputs[static_cast<std::size_t>(layer)];
    const Attended& y = outputs[static_cast<std::size_t>(layer)];
    const Gradients g = attend_backward(gradient, x, x, x, y, how);
    for (Index i = 0; i < gradient.elements(); ++i)
      gradient.data()[i] = g.dq.data()[i] + g.dk.data()[i] + g.dv.data()[i];
  }
  std::vector<double> sizes(length);
  for (Index i = 0; i < gradient.elements(); ++i)
    sizes[static_cast<std::size_t>(i / width)] += std::fabs(gradient.data()[i]);
  return sizes;
}

TEST(Facts, StackedWindowsReachLayersTimesTheWindow) {
  constexpr Index side = 5, token = 70;
  for (const int layers : {1, 2, 4}) {
    const std::vector<double> sizes = reach_of(window(side, side), layers, token);
    for (Index i = 0; i < length; ++i)
      EXPECT_EQ(sizes[static_cast<std::size_t>(i)] != 0, std::abs(i - token) <= layers * side)
          << layers << " layers, token " << i;
  }
}

}  // namespace
}  // namespace rapt::test
