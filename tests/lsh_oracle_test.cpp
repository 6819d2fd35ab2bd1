#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "attention/lsh_order.h"
#include "base/torch_random.h"
#include "rapt/lsh.h"
#include "support/bound.h"
#include "support/engine.h"

namespace rapt::test {
namespace {

TEST(TorchRandom, DrawsThePublishedNumbers) {
  TorchRandom uniform(0);
  for (const float want : {0.49625659f, 0.76822180f, 0.08847743f})
    EXPECT_NEAR(uniform.uniform(), want, 1e-7);
  const std::vector<float> sixteen = {-1.1258f, -1.1524f, -0.2506f, -0.4339f, 0.8487f, 0.6920f,
                                      -0.3160f, -2.1152f, 0.3223f,  -1.2633f, 0.3500f, 0.3081f,
                                      0.1198f,  1.2377f,  1.1168f,  -0.2473f};
  std::vector<float> got(16);
  TorchRandom(0).normal(got);
  for (std::size_t i = 0; i < 16; ++i) EXPECT_NEAR(got[i], sixteen[i], 1e-4) << i;
  std::vector<float> few(6);
  TorchRandom(0).normal(few);
  const float want[] = {1.5410f, -0.2934f, -2.1788f, 0.5684f, -1.0845f, -1.3986f};
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(few[i], want[i], 1e-4) << i;
}

/// The layer of spec-sparse F.4: Reformer's attention and feed-forward with torch's default
/// weights.
struct Layer {
  static constexpr Index hidden = 16, heads = 2, dim = 8, wide = 32;
  Doubles qk, v, o, w1, b1, w2, b2;

  Layer() {
    TorchRandom random(0);
    const auto draw = [&](Index count, Index inputs) {
      const float bound = 1 / std::sqrt(static_cast<float>(inputs));
      Doubles numbers;
      for (Index i = 0; i < count; ++i)
        numbers.push_back(random.uniform() * (bound + bound) - bound);
      return numbers;
    };
    qk = draw(256, 16), v = draw(256, 16), o = draw(256, 16);
    w1 = draw(512, 16), b1 = draw(32, 16), w2 = draw(512, 32), b2 = draw(16, 32);
  }

  static Doubles normed(const Doubles& x) {
    Doubles y(x.size());
    for (std::size_t r = 0; r < x.size(); r += 16) {
      double mean = 0, square = 0;
      for (std::size_t c = 0; c < 16; ++c) mean += x[r + c] / 16;
      for (std::size_t c = 0; c < 16; ++c) square += (x[r + c] - mean) * (x[r + c] - mean) / 16;
      for (std::size_t c = 0; c < 16; ++c) y[r + c] = (x[r + c] - mean) / std::sqrt(square + 1e-12);
    }
    return y;
  }
  static Doubles times(const Doubles& x, const Doubles& w, std::size_t in) {
    const std::size_t out = w.size() / in;
    Doubles y(x.size() / in * out);
    for (std::size_t r = 0; r < x.size() / in; ++r)
      for (std::size_t j = 0; j < out; ++j)
        for (std::size_t c = 0; c < in; ++c) y[r * out + j] += x[r * in + c] * w[j * in + c];
    return y;
  }
  /// [tokens, heads * dim] as [1, heads, tokens, dim]
  static Tensor split(const Doubles& x) {
    const Index tokens = std::ssize(x) / hidden;
    Tensor y({1, heads, tokens, dim});
    for (Index t = 0; t < tokens; ++t)
      for (Index c = 0; c < hidden; ++c)
        at(y, 0, c / dim, t, c % dim) =
            static_cast<float>(x[static_cast<std::size_t>(t * hidden + c)]);
    return y;
  }
  static Doubles joined(const Tensor& y) {
    const Index tokens = y.shape()[2];
    Doubles x(static_cast<std::size_t>(tokens * hidden));
    for (Index t = 0; t < tokens; ++t)
      for (Index c = 0; c < hidden; ++c)
        x[static_cast<std::size_t>(t * hidden + c)] =
            y.data()[((c / dim) * tokens + t) * dim + c % dim];
    return x;
  }
  struct Streams {
    Doubles y1, y2;
  };
  Streams run(const Doubles& x, const Attention& how, const Context& context) const {
    const Doubles ln = normed(x);
    const Tensor shared = split(times(ln, qk, 16)), values = split(times(ln, v, 16));
    Streams s;
    s.y1 = times(joined(attend(shared, shared, values, how, context).out), o, 16);
    for (std::size_t i = 0; i < x.size(); ++i) s.y1[i] += x[i];
    Doubles inner = times(normed(s.y1), w1, 16);
    for (std::size_t i = 0; i < inner.size(); ++i) {
      const double z = inner[i] + b1[i % 32];
      inner[i] = z / 2 * (1 + std::erf(z / std::sqrt(2.0)));
    }
    s.y2 = times(inner, w2, 32);
    for (std::size_t i = 0; i < x.size(); ++i) s.y2[i] += x[i] + b2[i % 16];
    return s;
  }
};

Doubles layer_input() {
  std::vector<float> x(32 * 16);
  TorchRandom(1).normal(x);
  return {x.begin(), x.end()};
}

void expect_near(const Doubles& got, std::size_t token, std::initializer_list<double> want,
                 const std::string& what) {
  std::size_t c = 0;
  for (const double x : want) {
    EXPECT_NEAR(got[token * 16 + c], x, 3e-5) << what << ", column " << c;
    ++c;
  }
}

double sum(const Doubles& x) { return std::accumulate(x.begin(), x.end(), 0.0); }

const Lsh published{.chunk = 4, .rounds = 4, .buckets = {2, 4}, .seed = 0};

// Numbers of spec-sparse F.4; each of them moves if hashing, sorting, the ring of chunks, keys,
// self rule or the join of rounds is wrong.
TEST(Lsh, TheStrongOracleWithoutMask) {
  const Layer layer;
  for (const Context& context : every_isa()) {
    const Attention how{.pattern = lsh(published)};
    const auto [y1, y2] = layer.run(layer_input(), how, context);
    const std::string at = context.isa();
    expect_near(y1, 0, {-1.72840, -0.81095, -0.65021, -1.66773, -0.10432, -0.79476}, at);
    expect_near(y1, 16, {-1.24433, 0.95737, 0.21322, 0.89933, 2.43387, 1.13309}, at);
    expect_near(y1, 31, {-1.47270, 0.25467, -0.03006, 1.68927, 0.18600, -0.20704}, at);
    expect_near(y2, 31, {-1.79558, 0.40177, -0.24032, 1.30871, -0.19838, -0.30427}, at);
    EXPECT_NEAR(sum(y1), 9.82422, 2e-4) << at;
    EXPECT_NEAR(sum(y2), -3.65746, 2e-4) << at;
  }
}

TEST(Lsh, TheStrongOracleCausalWithPadding) {
  const Layer layer;
  const std::vector<Index> hidden = {5, 6, 20, 21, 22, 23, 31};
  std::vector<std::vector<Index>> table(32);
  for (std::vector<Index>& row : table)
    for (Index j = 0; j < 32; ++j)
      if (std::count(hidden.begin(), hidden.end(), j) == 0) row.push_back(j);
  for (const Context& context : every_isa()) {
    const Attention how{.pattern = lsh(published) & causal() & blocks(1, table)};
    const auto [y1, y2] = layer.run(layer_input(), how, context);
    const std::string at = context.isa();
    expect_near(y1, 0, {-1.72385, -0.52530, -0.81711, -2.14362, -0.26547, 0.18716}, at);
    expect_near(y1, 16, {-1.24320, 0.95512, 0.16886, 0.91524, 2.38913, 1.26627}, at);
    expect_near(y1, 31, {-1.64921, 0.11313, -0.24843, 1.12380, 0.25859, -0.44100}, at);
    expect_near(y2, 31, {-1.81387, 0.34042, -0.29845, 1.37719, -0.13682, -0.29052}, at);
    EXPECT_NEAR(sum(y1), -19.05568, 3e-4) << at;
    EXPECT_NEAR(sum(y2), -4.28350, 3e-4) << at;
  }
}

/// Sorts by the published buckets and compares.
TEST(Lsh, TokensAreSortedByThePublishedBuckets) {
  const std::vector<int> buckets = {5, 4, 7, 3, 6, 6, 3, 2, 6, 4, 6, 2, 3, 6, 1, 2,
                                    3, 4, 0, 0, 7, 3, 4, 5, 3, 1, 6, 2, 2, 3, 3, 2};
  std::vector<std::int32_t> want(32);
  std::iota(want.begin(), want.end(), 0);
  std::stable_sort(want.begin(), want.end(), [&](std::int32_t a, std::int32_t b) {
    return buckets[static_cast<std::size_t>(a)] < buckets[static_cast<std::size_t>(b)];
  });
  const Layer layer;
  const Tensor q = Layer::split(Layer::times(Layer::normed(layer_input()), layer.qk, 16));
  for (const Context& context : every_isa()) {
    const AnyView view = q;
    const std::optional<View> none;
    const auto order = sort_tokens({view, view, published, none, {}, context});
    for (std::size_t s = 0; s < 32; ++s) EXPECT_EQ(order->queries(0)[s], want[s]) << s;
  }
}

/// Reformer's local layer, spec-sparse F.4: chunks of four in a ring.
TEST(Lsh, LocalChunksWrapAround) {
  struct Wanted {
    Index tokens;
    Pattern pattern;
    std::vector<double> first;
  };
  const std::vector<Wanted> all = {
      {12, chunks(4, 1, 0), {-1.38608, -0.72516, -0.83321, -1.47796, -0.04763}},
      {12, chunks(4, 1, 0) & causal(), {-1.73509, -0.96973, -0.62478, -1.43447, 0.01649}},
      {12, chunks(4, 1, 1), {-1.52071, -0.83076, -0.82896, -1.57097, -0.05967}}};
  TorchRandom random(0);
  const auto draw = [&] {
    Doubles numbers;
    for (int i = 0; i < 256; ++i) numbers.push_back(random.uniform() * 0.5f - 0.25f);
    return numbers;
  };
  const Doubles wq = draw(), wk = draw(), wv = draw(), wo = draw();
  for (const Wanted& want : all) {
    std::vector<float> numbers(static_cast<std::size_t>(want.tokens * 16));
    TorchRandom(1).normal(numbers);
    const Doubles x(numbers.begin(), numbers.end()), ln = Layer::normed(x);
    const Tensor q = Layer::split(Layer::times(ln, wq, 16));
    const Tensor k = Layer::split(Layer::times(ln, wk, 16));
    const Tensor v = Layer::split(Layer::times(ln, wv, 16));
    const Doubles y =
        Layer::times(Layer::joined(attend(q, k, v, {.pattern = want.pattern}).out), wo, 16);
    for (std::size_t c = 0; c < want.first.size(); ++c)
      EXPECT_NEAR(y[c] + x[c], want.first[c], 3e-5) << to_string(want.pattern) << ' ' << c;
  }
}

}  // namespace
}  // namespace rapt::test
