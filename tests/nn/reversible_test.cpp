#include "rapt/nn/reversible.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "rapt/lsh.h"
#include "support/engine.h"
#include "support/refused.h"
#include "support/truth/bound.h"
#include "support/truth/definition.h"

namespace rapt::test {
namespace {

TEST(Drop, IsAFunctionOfKeyAndPlace) {
  const DropoutKey key{.seed = 7, .step = 3, .layer = 2, .site = 1};
  for (const Context& context : every_isa())
    for (const Index count : {1, 64, 65, 1000}) {
      Tensor x({1, count});
      for (float& number : x.numbers()) number = 1;
      drop(x, 0.3, key, context);
      for (Index i = 0; i < count; ++i) {
        // Attention's generator, whose pair (row, column) is the place of a number here.
        const double want = kept(key.attention(0.3), 0, i / 64, i % 64);
        EXPECT_FLOAT_EQ(x.data()[i], static_cast<float>(want)) << i << " on " << context.isa();
      }
    }
}

TEST(Drop, KeysDifferInEveryPart) {
  const DropoutKey key{.seed = 7, .step = 3, .layer = 2, .site = 1};
  std::vector<DropoutKey> others(5, key);
  others[1].seed = 8, others[2].step = 4, others[3].layer = 3, others[4].site = 0;
  std::vector<Tensor> results;
  for (const DropoutKey& k : others) {
    results.emplace_back(Shape{40, 50});
    for (float& number : results.back().numbers()) number = 1;
    drop(results.back(), 0.5, k);
  }
  Index kept_count = 0;
  for (const float number : results[0].numbers()) kept_count += number != 0;
  EXPECT_NEAR(static_cast<double>(kept_count), 1000, 120);
  for (std::size_t i = 1; i < results.size(); ++i) {
    Index same = 0;
    for (std::size_t n = 0; n < 2000; ++n)
      same += results[0].numbers()[n] == results[i].numbers()[n];
    EXPECT_NEAR(static_cast<double>(same), 1000, 120) << i;  // as two coins agree
  }
}

TEST(Drop, EdgesTypesAndThreads) {
  Tensor x = random_tensor({3, 777}, 1);
  Tensor none = x.clone(), all = x.clone(), half = x.converted(Type::bf16), one = x.clone(),
         seven = x.clone();
  drop(none, 0, {});
  EXPECT_SILENT(different_bits("rate 0", none.numbers(), x.numbers()));
  drop(all, 1, {});
  for (const float number : all.numbers()) EXPECT_EQ(number, 0);
  drop(one, 0.25, {}, Context(1));
  drop(seven, 0.25, {}, Context(7));
  EXPECT_SILENT(different_bits("threads", one.numbers(), seven.numbers()));
  drop(half, 0.25, {});
  for (std::size_t i = 0; i < one.numbers().size(); ++i)
    EXPECT_NEAR(static_cast<float>(half.numbers<Bf16>()[i]), one.numbers()[i],
                0x1p-7 * std::abs(one.numbers()[i]));
  Tensor empty({0, 5});
  drop(empty, 0.5, {});
  expect_refused([&] { drop(x, 1.5, {}); }, {"rate is 1.5", "0 to 1"});
  expect_refused([&] { drop(x, std::nan(""), {}); }, {"rate is nan"});
  expect_refused([&] { drop(x.view().swapped(0, 1), 0.5, {}); }, {"row-major"});
}

/// A layer with all that makes recomputing delicate: hashed attention, dropout of probabilities and
/// of what comes out, and a feed-forward part with a weight. Streams are [1, heads, tokens, dim].
struct TestLayer {
  double rate = 0.2;
  Attention how{.pattern = lsh({.chunk = 8, .rounds = 2, .buckets = {4}}) & causal()};
  float weight = 0.7f;
  double dweight = 0, dweight_size = 0;                     // and the sum of the sizes of its terms
  std::map<Index, std::shared_ptr<const LshOrder>> orders;  // by layer
  std::vector<DropoutKey> keys;                             // in the order they came
  bool keep_orders = true;

  Attention at(const DropoutKey& key) const {
    Attention here = how;
    here.dropout = key.at(10).attention(rate);
    return here;
  }

  Tensor attention(View x, const DropoutKey& key) {
    keys.push_back(key);
    Attended y = attend(x, x, x, at(key));
    orders[key.layer] = y.rows.order;
    drop(y.out, rate, key);
    return std::move(y.out);
  }
  Recomputed attention_backward(View dy, View x, const DropoutKey& key) {
    keys.push_back(key);
    Attention here = at(key);
    if (keep_orders) here.order = orders.at(key.layer);
    Attended y = attend(x, x, x, here);
    Tensor dout(dy.shape());
    std::copy_n(dy.data(), dout.elements(), dout.data());
    drop(dout, rate, key);
    const Gradients g = attend_backward(dout, x, x, x, y, here);
    Tensor dx = g.dq.clone();
    for (Index i = 0; i < dx.elements(); ++i) dx.data()[i] += g.dk.data()[i] + g.dv.data()[i];
    drop(y.out, rate, key);
    return {std::move(y.out), std::move(dx)};
  }

  Tensor wave(View x, const DropoutKey& key) {
    keys.push_back(key);
    Tensor y(x.shape());
    for (Index i = 0; i < y.elements(); ++i) y.data()[i] = std::sin(weight * x.data()[i]);
    drop(y, rate, key);
    return y;
  }
  Recomputed wave_backward(View dy, View x, const DropoutKey& key) {
    Tensor y = wave(x, key), dx(x.shape());
    std::copy_n(dy.data(), dx.elements(), dx.data());
    drop(dx, rate, key);
    for (Index i = 0; i < dx.elements(); ++i) {
      const float slope = std::cos(weight * x.data()[i]);
      const double term = dx.data()[i] * slope * x.data()[i];
      dweight += term;
      dweight_size += std::abs(term);
      dx.data()[i] *= weight * slope;
    }
    return {std::move(y), std::move(dx)};
  }

  ReversibleLayer layer() {
    return {{[this](View x, const DropoutKey& key) { return attention(x, key); },
             [this](View dy, View x, const DropoutKey& k) { return attention_backward(dy, x, k); }},
            {[this](View x, const DropoutKey& key) { return wave(x, key); },
             [this](View dy, View x, const DropoutKey& k) { return wave_backward(dy, x, k); }}};
  }
};

double largest(const Tensor& x) {
  double most = 0;
  for (const float number : x.numbers())
    most = std::max(most, std::abs(static_cast<double>(number)));
  return most;
}

void expect_close(const Tensor& got, const Tensor& want, const char* what) {
  const double size = largest(want);
  for (std::size_t i = 0; i < want.numbers().size(); ++i)
    ASSERT_NEAR(got.numbers()[i], want.numbers()[i], 1e-5 * size) << what << ' ' << i;
}

/// The same layers with every activation kept: what the gradients must be.
ReversibleGradients with_stored_activations(std::span<const ReversibleLayer> layers,
                                            const ReversibleStreams& x, ReversibleStreams dy,
                                            const DropoutKey& key) {
  std::vector<ReversibleStreams> kept;
  kept.push_back({x.x1.clone(), x.x2.clone()});
  const auto plus = [](const Tensor& a, const Tensor& b) {
    Tensor sum = a.clone();
    for (Index i = 0; i < sum.elements(); ++i) sum.data()[i] += b.data()[i];
    return sum;
  };
  const auto key_of = [&](Index layer, Index site) {
    return DropoutKey{key.seed, key.step, key.layer + layer, site};
  };
  for (Index i = 0; i < std::ssize(layers); ++i) {
    const ReversibleStreams& in = kept.back();
    Tensor y1 = plus(in.x1, layers[i].f.forward(in.x2, key_of(i, 0)));
    Tensor y2 = plus(in.x2, layers[i].g.forward(y1, key_of(i, 1)));
    kept.push_back({std::move(y1), std::move(y2)});
  }
  for (Index i = std::ssize(layers) - 1; i >= 0; --i) {
    dy.x1 = plus(dy.x1, layers[i].g.backward(dy.x2, kept[i + 1].x1, key_of(i, 1)).dx);
    dy.x2 = plus(dy.x2, layers[i].f.backward(dy.x1, kept[i].x2, key_of(i, 0)).dx);
  }
  return {std::move(dy), std::move(kept[0])};
}

struct Stack {
  TestLayer part;
  std::vector<ReversibleLayer> layers;
  ReversibleStreams x{random_tensor({1, 2, 50, 8}, 1), random_tensor({1, 2, 50, 8}, 2)};
  ReversibleStreams dy{random_tensor({1, 2, 50, 8}, 3), random_tensor({1, 2, 50, 8}, 4)};
  DropoutKey key{.seed = 5, .step = 9, .layer = 100};

  explicit Stack(Index count) {
    for (Index i = 0; i < count; ++i) layers.push_back(part.layer());
  }
  ReversibleStreams input() const { return {x.x1.clone(), x.x2.clone()}; }
  ReversibleStreams gradient() const { return {dy.x1.clone(), dy.x2.clone()}; }
};

TEST(Reversible, InputsComeBackAndGradientsAreThoseOfStoredActivations) {
  for (const Index count : {0, 1, 6}) {
    Stack stack(count), stored(count);
    ReversibleStreams y = reversible_forward(stack.layers, stack.input(), stack.key);
    const ReversibleGradients got =
        reversible_backward(stack.layers, std::move(y), stack.gradient(), stack.key);
    expect_close(got.x.x1, stack.x.x1, "x1");
    expect_close(got.x.x2, stack.x.x2, "x2");
    const ReversibleGradients want =
        with_stored_activations(stored.layers, stored.input(), stored.gradient(), stored.key);
    expect_close(got.dx.x1, want.dx.x1, "dx1");
    expect_close(got.dx.x2, want.dx.x2, "dx2");
    EXPECT_NEAR(stack.part.dweight, stored.part.dweight, 1e-6 * stored.part.dweight_size);
  }
}

/// Every part sees its own key, and the same one on the way back.
TEST(Reversible, KeysNameLayerAndSiteAndAreReplayed) {
  Stack stack(3);
  ReversibleStreams y = reversible_forward(stack.layers, stack.input(), stack.key);
  const std::vector<DropoutKey> there = std::exchange(stack.part.keys, {});
  ASSERT_EQ(there.size(), 6u);
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_EQ(there[i],
              (DropoutKey{5, 9, 100 + static_cast<Index>(i / 2), static_cast<Index>(i % 2)}));
  reversible_backward(stack.layers, std::move(y), stack.gradient(), stack.key);
  EXPECT_EQ(stack.part.keys, std::vector<DropoutKey>(there.rbegin(), there.rend()));
}

/// What the keys protect from: with those of another step the inputs do not come back.
TEST(Reversible, AnotherStepDoesNotUndoThisOne) {
  Stack stack(2);
  ReversibleStreams y = reversible_forward(stack.layers, stack.input(), stack.key);
  DropoutKey other = stack.key;
  ++other.step;
  const ReversibleGradients got =
      reversible_backward(stack.layers, std::move(y), stack.gradient(), other);
  double off = 0;
  for (std::size_t i = 0; i < got.x.x1.numbers().size(); ++i)
    off = std::max(off, std::abs(static_cast<double>(got.x.x1.numbers()[i]) -
                                 static_cast<double>(stack.x.x1.numbers()[i])));
  EXPECT_GT(off, 0.01);
}

/// An order is kept, so numbers that hash elsewhere do not change who meets whom.
TEST(Reversible, AKeptOrderIsNotHashedAgain) {
  const Attention how{.pattern = lsh({.chunk = 8, .rounds = 2, .buckets = {4}})};
  const Tensor x = random_tensor({1, 2, 50, 8}, 1), other = random_tensor({1, 2, 50, 8}, 2);
  const Attended first = attend(x, x, x, how);
  Attention again = how;
  again.order = first.rows.order;
  EXPECT_SAME_BITS(attend(x, x, x, again), first);
  const Attended moved = attend(other, other, other, again);
  EXPECT_EQ(moved.rows.order, first.rows.order);
  EXPECT_NE(
      different_bits("order", moved.out.numbers(), attend(other, other, other, how).out.numbers()),
      "");
  expect_refused([&] { attend(x, x, x, {.order = first.rows.order}); }, {"order", "lsh"});
  const Tensor longer = random_tensor({1, 2, 51, 8}, 1);
  expect_refused([&] { attend(longer, longer, longer, again); }, {"another call"});
}

/// The whole stack against differences of a loss, along random directions, without hashing.
TEST(Reversible, GradientsAreDifferencesOfTheLoss) {
  Stack stack(3);
  stack.part.how.pattern = causal();
  stack.part.keep_orders = false;
  const auto loss = [&](double step) {
    ReversibleStreams x = stack.input();
    const Tensor a = random_tensor(x.x1.shape(), 21), b = random_tensor(x.x1.shape(), 22);
    for (Index i = 0; i < a.elements(); ++i) {
      x.x1.data()[i] += static_cast<float>(step) * a.data()[i];
      x.x2.data()[i] += static_cast<float>(step) * b.data()[i];
    }
    const ReversibleStreams y = reversible_forward(stack.layers, std::move(x), stack.key);
    double total = 0;
    for (Index i = 0; i < a.elements(); ++i)
      total += static_cast<double>(y.x1.data()[i]) * static_cast<double>(stack.dy.x1.data()[i]) +
               static_cast<double>(y.x2.data()[i]) * static_cast<double>(stack.dy.x2.data()[i]);
    return total;
  };
  ReversibleStreams y = reversible_forward(stack.layers, stack.input(), stack.key);
  const ReversibleGradients g =
      reversible_backward(stack.layers, std::move(y), stack.gradient(), stack.key);
  const Tensor a = random_tensor(g.dx.x1.shape(), 21), b = random_tensor(g.dx.x1.shape(), 22);
  double want = 0;
  for (Index i = 0; i < a.elements(); ++i)
    want += static_cast<double>(g.dx.x1.data()[i]) * static_cast<double>(a.data()[i]) +
            static_cast<double>(g.dx.x2.data()[i]) * static_cast<double>(b.data()[i]);
  constexpr double step = 1e-3;
  EXPECT_NEAR((loss(step) - loss(-step)) / (2 * step), want, 0.03 + 1e-3 * std::abs(want));
}

TEST(Reversible, MistakesAreNamed) {
  Stack stack(1);
  ReversibleStreams uneven{random_tensor({1, 2}, 1), random_tensor({1, 3}, 1)};
  expect_refused([&] { reversible_forward(stack.layers, std::move(uneven)); },
                 {"[1, 2]", "[1, 3]"});
  ReversibleStreams half{Tensor({1, 2}, Type::bf16), Tensor({1, 2})};
  expect_refused([&] { reversible_forward({}, std::move(half)); }, {"bf16", "expected f32"});
  const std::vector<ReversibleLayer> nothing(1);
  expect_refused([&] { reversible_forward(nothing, stack.input()); }, {"layer 0", "no forward"});
  std::vector<ReversibleLayer> wrong = {stack.part.layer()};
  wrong[0].g.forward = [](View, const DropoutKey&) { return Tensor({1, 1}); };
  expect_refused([&] { reversible_forward(wrong, stack.input()); }, {"g of layer 0", "[1, 1]"});
  wrong[0].g.backward = [](View, View, const DropoutKey&) { return Recomputed{}; };
  expect_refused([&] { reversible_backward(wrong, stack.input(), stack.gradient()); },
                 {"g of layer 0"});
  ReversibleStreams small{random_tensor({1, 2}, 1), random_tensor({1, 2}, 1)};
  expect_refused([&] { reversible_backward(stack.layers, stack.input(), std::move(small)); },
                 {"gradients have shape [1, 2]"});
}

}  // namespace
}  // namespace rapt::test
