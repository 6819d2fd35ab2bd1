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

TEST(Lsh, TextIsParsedBack) {
  for (const Lsh& options :
       {Lsh{}, Lsh{.chunk = 16, .rounds = 4, .buckets = {8, 16}, .seed = 7},
        Lsh{.chunk = 3, .rounds = 2, .before = 2, .after = 1, .keys = Lsh::Keys::separate},
        Lsh{.duplicates = Lsh::Duplicates::once}}) {
    const Pattern pattern = lsh(options) & causal();
    EXPECT_EQ(Pattern::parse(to_string(pattern)), pattern) << to_string(pattern);
  }
  EXPECT_EQ(Pattern::parse("lsh(64)"), lsh({}));
  EXPECT_EQ(Pattern::parse(to_string(chunks(64, 1, 2))), chunks(64, 1, 2));
  EXPECT_EQ(chunks(4, 1, 0).keys_of(1, {10, 10}), (Ranges{{0, 4}, {8, 10}}));
  EXPECT_EQ(chunks(4, 0, 1).keys_of(9, {10, 10}), (Ranges{{0, 4}, {8, 10}}));
  EXPECT_THROW(chunks(0, 1, 1), std::invalid_argument);
  for (const char* bad : {"lsh()", "lsh(0)", "lsh(64, 0)", "lsh(64, 1, {3})", "lsh(64, 1, twice)"})
    EXPECT_THROW(Pattern::parse(bad), std::invalid_argument) << bad;
}

TEST(Lsh, BucketsAreChosenAsTransformersDoes) {
  EXPECT_EQ(lsh_buckets(100, 64), (std::vector<Index>{4}));  // padded to 128
  EXPECT_EQ(lsh_buckets(1000, 64), (std::vector<Index>{32}));
  EXPECT_EQ(lsh_buckets(4096, 64), (std::vector<Index>{128}));
  EXPECT_EQ(lsh_buckets(16384, 64), (std::vector<Index>{16, 32}));
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

/// A call and its rule in doubles, one pair of slots at a time.
struct Hashed {
  Hashed(const Lsh& options, Pattern pattern, Index count)
      : lsh(options), rest(std::move(pattern)), tokens(count) {}

  Lsh lsh;
  Pattern rest;
  Index heads = 2, tokens, dim = 8, value_dim = 5;
  Doubles q, k, v;
  std::shared_ptr<const LshOrder> order;

  Pattern pattern() const { return rapt::lsh(lsh) & rest; }

  /// How often chunk b stands among those that a slot of chunk a sees.
  Index meetings(Index a, Index b) const {
    if (!order->sorted()) return 1;
    const Index chunks = order->slots() / lsh.chunk;
    Index count = 0;
    for (Index step = -lsh.before; step <= lsh.after; ++step)
      count += ((a / lsh.chunk + step) % chunks + chunks) % chunks == b / lsh.chunk;
    return count;
  }

  /// Slots of key j that slots of query i see.
  Index all_meetings(Index head, Index i, Index j) const {
    Index count = 0;
    for (Index a = 0; a < order->slots(); ++a)
      for (Index b = 0; b < order->slots(); ++b)
        count += order->queries(head)[a] == i && order->keys(head)[b] == j && meetings(a, b) > 0;
    return count;
  }

  double factor(const Doubles& x, Index row) const {
    if (lsh.keys == Lsh::Keys::separate) return 1;
    double square = 0;
    for (Index c = 0; c < dim; ++c) square += x[row * dim + c] * x[row * dim + c];
    return 1 / std::sqrt(square / static_cast<double>(dim) + 1e-6);
  }

  /// out [heads, tokens, value_dim] of these operands; the order stays as it is.
  Doubles out(const Doubles& q_, const Doubles& k_, const Doubles& v_) const {
    Doubles all;
    for (Index head = 0; head < heads; ++head) {
      const std::int32_t *queries = order->queries(head), *keys = order->keys(head);
      std::vector<Doubles> sums(static_cast<std::size_t>(tokens), Doubles(value_dim));
      Doubles weight(tokens), most(tokens, -1e300);
      for (int pass = 0; pass < 2; ++pass)
        for (Index a = 0; a < order->slots(); ++a)
          for (Index b = 0; b < order->slots(); ++b) {
            const Index i = queries[a], j = keys[b];
            if (i < 0 || j < 0 || meetings(a, b) == 0) continue;
            const bool self = i == j && lsh.keys == Lsh::Keys::shared;
            const Ranges seen = rest.keys_of(i, {tokens, tokens});
            const bool visible = std::any_of(seen.begin(), seen.end(), [&](const Range& r) {
              return r.begin <= j && j < r.end;
            });
            if (!visible && !self) continue;
            double z = 0;
            for (Index c = 0; c < dim; ++c)
              z += q_[(head * tokens + i) * dim + c] * k_[(head * tokens + j) * dim + c];
            z *= factor(k_, head * tokens + j) / std::sqrt(static_cast<double>(dim));
            if (self) z = -1e5;
            if (pass == 0) {
              most[i] = std::max(most[i], z);
              continue;
            }
            double p = std::exp(z - most[i]);
            if (!self && lsh.duplicates == Lsh::Duplicates::once) {
              p /= static_cast<double>(all_meetings(head, i, j));
            } else if (!self) {
              p *= static_cast<double>(meetings(a, b));
            }
            weight[i] += p;
            for (Index t = 0; t < value_dim; ++t)
              sums[i][t] += p * v_[(head * tokens + j) * value_dim + t];
          }
      for (Index i = 0; i < tokens; ++i)
        for (Index t = 0; t < value_dim; ++t)
          all.push_back(weight[i] == 0 ? 0 : sums[i][t] / weight[i]);
    }
    return all;
  }
};

Doubles moved(const Doubles& x, const Doubles& along, double step) {
  Doubles y = x;
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += step * along[i];
  return y;
}

double dot(const Doubles& a, std::span<const float> b) {
  double total = 0;
  for (std::size_t i = 0; i < a.size(); ++i) total += a[i] * static_cast<double>(b[i]);
  return total;
}

/// Forward against the definition, each gradient along a random direction against differences of
/// it.
void expect_defined(Hashed h) {
  const Shape shape{1, h.heads, h.tokens, h.dim};
  const bool shared = h.lsh.keys == Lsh::Keys::shared;
  const Tensor q = random_tensor(shape, 1), other = random_tensor(shape, 2);
  const Tensor& k = shared ? q : other;
  const Tensor v = random_tensor({1, h.heads, h.tokens, h.value_dim}, 3);
  const Tensor dout = random_tensor(v.shape(), 4);
  h.q = doubles(q.view()), h.k = doubles(k.view()), h.v = doubles(v.view());
  const Attention how{.pattern = h.pattern()};
  for (const Context& context : every_isa()) {
    const std::string at = to_string(how.pattern) + " on " + context.isa();
    const Attended got = attend(q, k, v, how, context);
    h.order = got.rows.order;
    const Doubles want = h.out(h.q, h.k, h.v);
    for (std::size_t i = 0; i < want.size(); ++i)
      // A token alone with itself is rounded as Transformers rounds it.
      ASSERT_NEAR(got.out.numbers()[i], want[i],
                  2e-6 + 5e-3 * std::fabs(want[i]) * (got.lse.numbers()[i / 5] < -1e4f))
          << i << ' ' << at;
    const Gradients g = attend_backward(dout, q, k, v, got.out, got.rows, how, context);
    const auto along = [&](std::uint64_t seed, std::size_t count) {
      const std::vector<float> numbers = normals(static_cast<Index>(count), seed);
      return Doubles(numbers.begin(), numbers.end());
    };
    constexpr double step = 1e-5;
    const auto slope = [&](const auto& out_at) {
      return (dot(out_at(step), dout.numbers()) - dot(out_at(-step), dout.numbers())) / (2 * step);
    };
    const Doubles to_q = along(5, h.q.size()), to_k = along(6, h.k.size()),
                  to_v = along(7, h.v.size());
    const double dq = slope([&](double s) { return h.out(moved(h.q, to_q, s), h.k, h.v); });
    const double dk = slope([&](double s) { return h.out(h.q, moved(h.k, to_k, s), h.v); });
    const double dv = slope([&](double s) { return h.out(h.q, h.k, moved(h.v, to_v, s)); });
    const double size = std::sqrt(static_cast<double>(h.q.size()));
    const bool lonely = std::any_of(got.lse.numbers().begin(), got.lse.numbers().end(),
                                    [](float x) { return x < -1e4f; });
    EXPECT_NEAR(dot(to_q, g.dq.numbers()), dq, 2e-5 * size) << at;
    EXPECT_NEAR(dot(to_k, g.dk.numbers()), dk, 2e-5 * size) << at;
    EXPECT_NEAR(dot(to_v, g.dv.numbers()), dv, (lonely ? 1e-2 : 2e-5) * size) << at;
  }
}

TEST(Lsh, AnswersAreThoseOfTheDefinition) {
  for (const Lsh& options :
       {Lsh{.chunk = 8, .rounds = 3, .buckets = {4, 2}}, Lsh{.chunk = 16, .rounds = 1, .after = 1},
        Lsh{.chunk = 64, .rounds = 2, .seed = 3},
        Lsh{.chunk = 8, .rounds = 2, .keys = Lsh::Keys::separate}, Lsh{.chunk = 300, .rounds = 2}})
    for (const char* rest : {"full", "causal", "keys(61) & causal", "documents({30, 40})",
                             "window(9, 2) | tokens({0, 40})"})
      expect_defined(Hashed(options, Pattern::parse(rest), 77));
  // A ring shorter than the neighbourhood, and keys that count once.
  expect_defined(Hashed({.chunk = 40, .rounds = 1, .before = 1, .after = 1}, full(), 77));
  expect_defined(
      Hashed({.chunk = 8, .rounds = 3, .duplicates = Lsh::Duplicates::once}, causal(), 30));
}

TEST(Lsh, BitsDoNotDependOnThreads) {
  const Tensor q = random_tensor({2, 3, 333, 16}, 1), v = random_tensor({2, 3, 333, 16}, 2);
  const Attention how{.pattern = lsh({.chunk = 16, .rounds = 3}) & causal()};
  const Attended one = attend(q, q, v, how, Context(1)), three = attend(q, q, v, how, Context(3));
  EXPECT_SAME_BITS(one, three);
  EXPECT_SAME_BITS(attend_backward(v, q, q, v, one.out, one.rows, how, Context(1)),
                   attend_backward(v, q, q, v, one.out, one.rows, how, Context(3)));
}

TEST(Lsh, SeparateKeysOfOneChunkArePlainAttention) {
  // However large the logits are.
  for (const float size : {1.0f, 30.0f, 3000.0f}) {
    Tensor q = random_tensor({1, 2, 50, 8}, 1), k = random_tensor({1, 2, 50, 8}, 2);
    for (float& x : q.numbers()) x *= size;
    for (float& x : k.numbers()) x *= size;
    const Tensor v = random_tensor({1, 2, 50, 8}, 3);
    const Attended got =
        attend(q, k, v, {.pattern = lsh({.chunk = 64, .keys = Lsh::Keys::separate})});
    const Attended want = attend(q, k, v);
    for (std::size_t i = 0; i < got.out.numbers().size(); ++i)
      ASSERT_NEAR(got.out.numbers()[i], want.out.numbers()[i], 1e-6) << size;
  }
}

TEST(Lsh, NanComesOutAndEmptyCallsWork) {
  const Tensor q = random_tensor({1, 1, 60, 8}, 1), v = random_tensor({1, 1, 60, 8}, 2);
  Tensor k = random_tensor({1, 1, 60, 8}, 3);
  at(k, 0, 0, 17, 2) = std::numeric_limits<float>::quiet_NaN();
  const Pattern near =
      lsh({.chunk = 8, .rounds = 2, .before = 0, .keys = Lsh::Keys::separate}) & window(1, 1);
  const Attended got = attend(q, k, v, {.pattern = near});
  const std::shared_ptr<const LshOrder> order = got.rows.order;
  for (Index i = 0; i < 60; ++i) {
    bool meets = false;  // the NaN key, in a chunk of either round
    for (Index a = 0; a < order->slots(); ++a)
      for (Index b = a / 8 * 8; b < a / 8 * 8 + 8; ++b)
        meets |= order->queries(0)[a] == i && order->keys(0)[b] == 17 && std::abs(i - 17) <= 1;
    EXPECT_EQ(std::isnan(got.out.numbers()[static_cast<std::size_t>(i * 8)]), meets) << i;
  }
  for (const Shape& shape : {Shape{1, 2, 0, 8}, Shape{0, 2, 9, 8}, Shape{2, 1, 1, 8}}) {
    const Tensor x(shape);
    const Attended y = attend(x, x, x, {.pattern = lsh({.chunk = 4})});
    attend_backward(x, x, x, x, y.out, y.rows, {.pattern = lsh({.chunk = 4})});
  }
}

TEST(Lsh, DropoutDiffersFromHeadToHead) {
  Tensor q({2, 2, 64, 8});
  const Tensor one = random_tensor({1, 1, 64, 8}, 1);
  for (Index i = 0; i < q.elements(); ++i) q.data()[i] = one.data()[i % one.elements()];
  const Attended y = attend(q, q, q, {.pattern = lsh({.chunk = 64}), .dropout = {.rate = 0.5}});
  for (std::size_t owner = 1; owner < 4; ++owner)
    EXPECT_NE(different_bits("head", y.out.numbers().subspan(0, 512),
                             y.out.numbers().subspan(owner * 512, 512)),
              "");
}

TEST(Lsh, MistakesAreNamed) {
  const Tensor q = random_tensor({1, 2, 100, 8}, 1), k = random_tensor({1, 1, 100, 8}, 2);
  EXPECT_THROW(attend(q, k, k, {.pattern = lsh({})}), std::invalid_argument);
  EXPECT_THROW(attend(q, q, q, {.pattern = lsh({}) | causal()}), std::invalid_argument);
  EXPECT_THROW(attend(q, q, q, {.pattern = lsh({}) & lsh({})}), std::invalid_argument);
  EXPECT_THROW(attend(q, q, q, {.pattern = lsh({}), .bias = alibi(2)}), std::invalid_argument);
  EXPECT_THROW(attend(q, q, q, {.pattern = lsh({}), .rotations = q.view()}), std::invalid_argument);
  EXPECT_THROW(Plan(lsh({}), {100, 100}), std::invalid_argument);
  EXPECT_THROW(attend(q, q, q, {.rotations = q.view()}), std::invalid_argument);
  EXPECT_THROW(lsh_pairs({.chunk = 0}, 10), std::invalid_argument);
  const Tensor wide({1, 1, 70, 600});
  EXPECT_THROW(attend(wide, wide, wide, {.pattern = lsh({})}), std::invalid_argument);
  // The order of another chunk.
  const Attended y = attend(q, q, q, {.pattern = lsh({.chunk = 8})});
  EXPECT_THROW(attend_backward(q, q, q, q, y.out, y.rows, {.pattern = lsh({.chunk = 16})}),
               std::invalid_argument);
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
