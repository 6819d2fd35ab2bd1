#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "attention/lsh/lsh_order.h"
#include "base/torch_random.h"
#include "rapt/lsh.h"
#include "support/engine.h"
#include "support/refused.h"
#include "support/truth/bound.h"
#include "support/truth/reformer.h"
#include "support/truth/reformer_published.h"

namespace rapt::test {
using namespace detail;
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
  std::vector<float> some(6);
  TorchRandom(0).normal(some);
  const float want[] = {1.5410f, -0.2934f, -2.1788f, 0.5684f, -1.0845f, -1.3986f};
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(some[i], want[i], 1e-4) << i;
}

Doubles layer_input(std::size_t tokens = 32) {
  std::vector<float> x(tokens * 16);
  TorchRandom(1).normal(x);
  return {x.begin(), x.end()};
}

void expect_near(const Doubles& got, std::size_t first, const Doubles& want, double tolerance,
                 const std::string& what) {
  for (const double x : want) {
    EXPECT_NEAR(got[first], x, tolerance) << what << ", number " << first;
    ++first;
  }
}

double sum(const Doubles& x) { return std::accumulate(x.begin(), x.end(), 0.0); }

using Kind = ReformerLayer::Kind;
using Streams = ReformerLayer::Streams;
constexpr double exact = 3e-5;  // of numbers printed with five digits

ReformerLayer bare_layer(Kind kind) {
  TorchRandom random(0);
  return {kind, random};
}

struct Strong {
  ReformerConfig config{.lsh = {.chunk = 4, .rounds = 4, .buckets = {2, 4}, .seed = 0}};
  ReformerLayer layer = bare_layer(Kind::lsh);
  Doubles x = layer_input();
  Streams y, dx;

  /// Forward, and the gradients of half the sum of squares of the second stream.
  void run(const std::vector<std::uint8_t>& real) {
    y = layer.forward({x, x}, config, real);
    Streams back = y;
    dx = layer.backward({Doubles(x.size()), y.x2}, back, config);
    expect_near(back.x1, 0, {x[0], x[1], x[2]}, 1e-5, "computed back");
    for (std::size_t i = 0; i < x.size(); ++i) dx.x1[i] += dx.x2[i];
  }
};

// Numbers of spec-sparse F.4, confirmed with Transformers 5 and torch's gradients; each of them
// moves if hashing, sorting, the ring of chunks, keys, self rule or the join of rounds is wrong.
TEST(Lsh, TheStrongOracleWithoutMask) {
  for (const Context& context : every_isa()) {
    Strong s;
    s.config.causal = false;
    s.config.context = context;
    s.run({});
    const std::string at = context.isa();
    expect_near(s.y.x1, 0, {-1.72840, -0.81095, -0.65021, -1.66773, -0.10432, -0.79476}, exact, at);
    expect_near(s.y.x1, 256, {-1.24433, 0.95737, 0.21322, 0.89933, 2.43387, 1.13309}, exact, at);
    expect_near(s.y.x1, 496, {-1.47270, 0.25467, -0.03006, 1.68927, 0.18600, -0.20704}, exact, at);
    expect_near(s.y.x2, 496, {-1.79558, 0.40177, -0.24032, 1.30871, -0.19838, -0.30427}, exact, at);
    EXPECT_NEAR(sum(s.y.x1), 9.82422, 2e-4) << at;
    EXPECT_NEAR(sum(s.y.x2), -3.65746, 2e-4) << at;
    expect_near(s.layer.q.dweight, 0, {-0.196623, 0.169002, -0.173665, 0.311349}, 1e-5, at);
    expect_near(s.layer.v.dweight, 0, {-0.060814, -0.392776, -0.465587, 0.174820}, 1e-5, at);
    expect_near(s.layer.o.dweight, 0, {0.141793, 0.525229, 0.189318, 0.195032}, 1e-5, at);
    expect_near(s.layer.inner.dweight, 0, {-1.788824, -2.330688, -0.740134, -0.204550}, 1e-5, at);
    expect_near(s.dx.x1, 256, {-1.336220, 1.089244, 0.220113, 0.898157}, 1e-5, at);
  }
}

TEST(Lsh, TheStrongOracleCausalWithPadding) {
  std::vector<std::uint8_t> real(32, 1);
  for (const std::size_t j : {5, 6, 20, 21, 22, 23, 31}) real[j] = 0;
  for (const Context& context : every_isa()) {
    Strong s;
    s.config.context = context;
    s.run(real);
    const std::string at = context.isa();
    expect_near(s.y.x1, 0, {-1.72385, -0.52530, -0.81711, -2.14362, -0.26547, 0.18716}, exact, at);
    expect_near(s.y.x1, 256, {-1.24320, 0.95512, 0.16886, 0.91524, 2.38913, 1.26627}, exact, at);
    expect_near(s.y.x1, 496, {-1.64921, 0.11313, -0.24843, 1.12380, 0.25859, -0.44100}, exact, at);
    expect_near(s.y.x2, 496, {-1.81387, 0.34042, -0.29845, 1.37719, -0.13682, -0.29052}, exact, at);
    EXPECT_NEAR(sum(s.y.x1), -19.05568, 3e-4) << at;
    EXPECT_NEAR(sum(s.y.x2), -4.28350, 3e-4) << at;
    expect_near(s.layer.q.dweight, 0, {-0.293207, 0.124451, -0.152490, 0.108951}, 1e-5, at);
    expect_near(s.layer.v.dweight, 0, {-0.492575, 0.161252, -0.379726, 0.326701}, 1e-5, at);
    expect_near(s.layer.o.dweight, 0, {-0.083598, 1.093287, 0.231230, 0.506652}, 1e-5, at);
    expect_near(s.dx.x1, 256, {-1.318705, 1.091386, 0.201620, 0.859101}, 1e-5, at);
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
  const Strong s;
  const Tensor q = split_heads(s.layer.q(normed(layer_input(), 16)));
  for (const Context& context : every_isa()) {
    const AnyView view = q;
    const std::optional<View> none;
    const auto order = sort_tokens({view, view, s.config.lsh, none, {}, context});
    for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(order->queries(0)[i], want[i]) << i;
  }
}

/// Reformer's local layer: chunks of four in a ring, numbers of spec-sparse F.4 and, for gradients
/// of half the sum of squares and for rows that see nothing, of Transformers.
struct LocalCase {
  std::size_t tokens;
  Index before, after;
  bool causal;
  std::vector<std::uint8_t> real;
  std::size_t row;
  Doubles out, dk, dv;
};

const std::vector<LocalCase>& local_cases() {
  static const std::vector<LocalCase> cases = {
      {12,
       1,
       0,
       false,
       {},
       0,
       {-1.386083, -0.725164, -0.833206, -1.477957, -0.047634},
       {-0.321438, 0.227318, -0.487322, 0.118843},
       {0.462428, 0.069823, -0.008617, -0.048560}},
      {12,
       1,
       0,
       true,
       {},
       0,
       {-1.735090, -0.969730, -0.624782, -1.434468, 0.016491},
       {-0.355774, 0.316117, -0.282620, 0.345053},
       {0.026301, 0.002591, -0.104671, -0.387583}},
      {12,
       1,
       1,
       false,
       {},
       0,
       {-1.520713, -0.830763, -0.828964, -1.570972, -0.059672},
       {-0.442075, 0.115374, -0.301924, 0.139392},
       {0.260672, 0.052381, 0.029769, -0.044342}},
      // Two chunks that meet twice.
      {8,
       1,
       1,
       false,
       {},
       0,
       {-1.577440, -0.841436, -0.779940, -1.703902, -0.098064},
       {-0.127422, 0.108725, -0.035666, 0.039183},
       {0.118977, 0.109793, 0.019492, 0.175577}},
      // Token 5 sees only padding, as all do in the second one.
      {12,
       1,
       0,
       false,
       {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1},
       5,
       {-0.157165, 0.202247, -1.415909, 0.145615, -1.311309},
       {0.018063, 0.338918, -0.357823, -0.376676},
       {0.270851, -0.578440, 0.303105, -1.157619}},
      {8,
       1,
       1,
       false,
       std::vector<std::uint8_t>(8),
       5,
       {0.895573, 1.282462, -1.679154, -0.006404, -1.244584},
       {0, 0, 0, 0},
       {4.476799, 0.038670, 0.805375, 1.953553}}};
  return cases;
}

TEST(ReformerLocal, IsThatOfTransformers) {
  for (const LocalCase& c : local_cases())
    for (const Context& context : every_isa()) {
      const std::string what = std::to_string(c.tokens) + " tokens, " + std::to_string(c.after) +
                               " after, on " + context.isa();
      ReformerConfig config{.causal = c.causal, .context = context};
      config.local.before = c.before;
      config.local.after = c.after;
      ReformerLayer layer = bare_layer(Kind::local);
      const Doubles x = layer_input(c.tokens);
      const Doubles y1 = layer.forward({x, x}, config, c.real).x1;
      expect_near(y1, c.row * 16, c.out, 3e-6, what);
      // A feed-forward without weights: the second stream passes, the first is what we look at.
      std::fill(layer.outer.weight.begin(), layer.outer.weight.end(), 0.0);
      std::fill(layer.outer.bias.begin(), layer.outer.bias.end(), 0.0);
      Streams y = layer.forward({x, x}, config, c.real);
      layer.backward({y.x1, Doubles(x.size())}, y, config);
      expect_near(layer.k.dweight, 0, c.dk, 1e-5, "dk, " + what);
      expect_near(layer.v.dweight, 0, c.dv, 1e-5, "dv, " + what);
    }
}

/// The constants of Transformers' own tests, spec-sparse F.2.
TEST(Reformer, LayersAnswerAsInTheTestsOfTransformers) {
  const Doubles x = published_layer_input();
  struct Wanted {
    Kind kind;
    std::vector<Index> buckets;
    bool causal;
    std::vector<std::uint8_t> real;
    Doubles out;
  };
  const std::vector<Wanted> all = {
      {Kind::lsh, {2}, false, {}, {1.6879, -1.3083, -0.4708, 1.3555, -0.6292}},
      {Kind::lsh, {2, 4}, true, {0, 1, 0, 0}, {1.6439, -1.2306, -0.5108, 1.3006, -0.6537}},
      {Kind::local, {2}, false, {}, {1.4212, -2.0576, -0.9688, 1.4599, -0.1344}},
      {Kind::local, {2}, true, {0, 1, 0, 0}, {1.4750, -2.0235, -0.9743, 1.4463, -0.1269}}};
  for (const Wanted& want : all) {
    ReformerConfig config{.causal = want.causal};
    config.lsh.buckets = want.buckets;
    config.lsh.before = config.local.before = 0;
    ReformerLayer layer = bare_layer(want.kind);
    expect_near(layer.forward({x, x}, config, want.real).x2, 0, want.out, 1e-4, "T1 to T4");
  }
  // Without the option a row that sees nothing is zero, which is another layer.
  ReformerConfig zeros{.local = {.chunk = 4, .before = 0}};
  ReformerLayer layer = bare_layer(Kind::local);
  EXPECT_GT(std::abs(layer.forward({x, x}, zeros, {0, 1, 0, 0}).x2[0] - 1.4750), 1e-3);
}

TEST(Reformer, ModelsAnswerAsInTheTestsOfTransformers) {
  const auto ids = published_ids();
  const auto real = published_mask();
  ReformerConfig config;
  config.lsh.buckets = {2, 4};
  ReformerModel lsh(std::vector<Kind>(4, Kind::lsh), false);
  Doubles hidden = lsh.last_hidden(ids[0], config, real[0]);
  expect_near(hidden, 0, {-0.9896, -0.9396, -1.0831, -0.0597, 0.2456}, 1e-4, "T5");
  expect_near(hidden, 31 * 32, {-0.02229, -0.39321, 0.10299, 0.88689, -0.56180}, exact, "T5");
  ReformerModel local(std::vector<Kind>(4, Kind::local), false);
  hidden = local.last_hidden(ids[0], config, real[0]);
  expect_near(hidden, 0, {-1.6791, 0.7171, 0.1594, 0.4063, 1.2584}, 1e-4, "T6");
  expect_near(hidden, 31 * 32, {0.05972, -1.75591, -0.03096, -0.00295, 1.78494}, exact, "T6");
  config.causal = false;
  ReformerModel masked({Kind::local, Kind::lsh, Kind::local, Kind::lsh, Kind::local, Kind::lsh},
                       true);
  const Doubles logits = masked.logits(ids[1], config, real[1]);
  expect_near(logits, 31 * 320, {0.1018, -0.2026, 0.2116, 0.0270, -0.1233}, 1e-4, "T7");
}

TEST(Reformer, LossesAndGradientsAreThoseOfTransformers) {
  ReformerConfig config;
  config.lsh.buckets = {2, 4};
  config.lsh.rounds = 6;
  ReformerModel local(std::vector<Kind>(4, Kind::local), true);
  const ReformerModel::Loss t8 = local.loss(published_ids(), config);
  EXPECT_NEAR(t8.value, 5.801913, 2e-6);
  expect_near(t8.dwords, 0, {-0.000497, -0.000133, -0.000178, -0.000625, -0.000559}, 2e-6, "T8");
  expect_near(local.axial_rows, 11, {-0.5235, 0.5704, 0.0922, -0.3140, 0.9928}, 1e-4, "T8");
  expect_near(local.axial_columns, 8, {1.7960, 1.7668, 0.5593, 0.0907, 1.8342}, 1e-4, "T8");
  ReformerModel lsh(std::vector<Kind>(4, Kind::lsh), true);
  const ReformerModel::Loss t9 = lsh.loss(published_ids(), config);
  EXPECT_NEAR(t9.value, 5.785395, 2e-6);
  expect_near(t9.dwords, 0, {0.000359, 0.000325, 0.000609, -0.000406, 0.000245}, 2e-6, "T9");
  expect_near(lsh.axial_rows, 11, {-0.3792, 0.5593, -1.6993, 0.2033, 0.4131}, 1e-4, "T9");
  expect_near(lsh.axial_columns, 8, {-1.4212, -0.3201, -1.1944, 0.1258, 0.2856}, 1e-4, "T9");
}

TEST(ReformerLocal, MistakesAreNamed) {
  const Tensor q = random_tensor({2, 1, 10, 8}, 1);
  const auto refuse = [&](const ReformerLocal& how, const std::vector<std::string>& words) {
    expect_refused([&] { attend_reformer_local(q, q, q, how); }, words);
  };
  refuse({.chunk = 0}, {"chunk is 0", "1 to"});
  refuse({.before = -1}, {"before is -1"});
  refuse({.after = 5000}, {"after is 5000", "1024"});
  refuse({.attention_mask = {1, 0, 1}}, {"3 numbers in attention_mask", "10", "20"});
  refuse({.empty_rows = ReformerLocal::EmptyRows::sum, .dropout = {.rate = 0.1}},
         {"EmptyRows::sum", "dropout"});
  const Tensor k = random_tensor({2, 1, 9, 8}, 1);
  expect_refused([&] { attend_reformer_local(q, k, k, {}); }, {"[2, 1, 10, 8]", "[2, 1, 9, 8]"});
  const Attended y = attend_reformer_local(q, q, q, {.chunk = 4});
  const Tensor other = random_tensor({2, 1, 9, 8}, 1);
  expect_refused([&] { attend_reformer_local_backward(other, q, q, q, y, {.chunk = 4}); },
                 {"dout"});
  Attended fewer = attend_reformer_local(q, q, q, {.chunk = 4});
  fewer.rows.max.pop_back();
  expect_refused([&] { attend_reformer_local_backward(q, q, q, q, fewer, {.chunk = 4}); },
                 {"19 max"});
}

/// A mask for each item is what items one by one give, at lengths of no particular size.
TEST(ReformerLocal, ItemsHaveTheirOwnMasks) {
  const Tensor q = random_tensor({2, 2, 11, 8}, 1), k = random_tensor({2, 2, 11, 8}, 2);
  const Tensor v = random_tensor({2, 2, 11, 5}, 3), dout = random_tensor({2, 2, 11, 5}, 4);
  ReformerLocal how{.chunk = 4, .after = 1, .empty_rows = ReformerLocal::EmptyRows::sum};
  how.attention_mask = {1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 1};
  const Attended both = attend_reformer_local(q, k, v, how);
  const Gradients g = attend_reformer_local_backward(dout, q, k, v, both, how);
  const auto half = [](const Tensor& x, Index item) {
    const Index count = x.elements() / 2;
    Shape shape = x.shape();
    shape[0] = 1;
    Tensor y(shape);
    std::copy_n(x.data() + item * count, count, y.data());
    return y;
  };
  for (Index item = 0; item < 2; ++item) {
    ReformerLocal one = how;
    one.attention_mask.assign(how.attention_mask.begin() + item * 11,
                              how.attention_mask.begin() + item * 11 + 11);
    const Tensor q1 = half(q, item), k1 = half(k, item), v1 = half(v, item);
    const Attended y = attend_reformer_local(q1, k1, v1, one);
    EXPECT_SILENT(different_bits("out", y.out.numbers(), half(both.out, item).numbers()));
    const Gradients d = attend_reformer_local_backward(half(dout, item), q1, k1, v1, y, one);
    EXPECT_SILENT(different_bits("dv", d.dv.numbers(), half(g.dv, item).numbers()));
    EXPECT_SILENT(different_bits("dk", d.dk.numbers(), half(g.dk, item).numbers()));
  }
}

}  // namespace
}  // namespace rapt::test
