#include "rapt/longformer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/torch_random.h"
#include "support/engine.h"
#include "support/refused.h"
#include "support/truth/bound.h"

namespace rapt::test {
using namespace detail;
namespace {

using enum TokenClass;

/// The six projections of spec-sparse F.5, drawn by torch's generator, and its input.
struct Published {
  static constexpr Index width = 8, heads = 2, dim = 4, tokens = 4;
  struct Linear {
    Doubles weight, bias;
  };
  std::vector<Linear> linears;
  Doubles x;  // [samples][tokens][8]

  explicit Published(Index samples) {
    TorchRandom random(0);
    const float bound = 1 / std::sqrt(8.0f);
    const auto draw = [&](Index count) {
      Doubles numbers;
      for (Index i = 0; i < count; ++i)
        numbers.push_back(random.uniform() * (bound + bound) - bound);
      return numbers;
    };
    for (int i = 0; i < 6; ++i) {
      Doubles weight = draw(64);
      linears.push_back({std::move(weight), draw(8)});
    }
    const Doubles table = {0.498332758,   2.69175139,   -0.00708081422, 1.04915401,   -1.83476661,
                           0.767220476,   0.298580543,  0.0284803992,   -0.758357372, 0.420635998,
                           -0.0404739919, 0.159924145,  2.05135748,     -1.15997978,  0.537166397,
                           0.262873606,   -1.69438001,  0.41757466,     -1.49196962,  -1.76483717,
                           -0.194566312,  -1.71183858,  0.772903565,    -1.11557056,  0.544028163,
                           0.205466114,   -0.363045868, 0.241865062,    0.320348382,  -0.905611176,
                           -0.192690727,  -1.19917547};
    for (Index s = 0; s < samples; ++s)
      for (const double number : table) x.push_back(number - 0.5 * static_cast<double>(s));
  }

  Index samples() const { return std::ssize(x) / (tokens * width); }

  /// [samples, heads, tokens, dim]
  Tensor project(int which) const {
    const Linear& linear = linears[static_cast<std::size_t>(which)];
    Tensor y({samples(), heads, tokens, dim});
    for (Index row = 0; row < samples() * tokens; ++row)
      for (Index c = 0; c < width; ++c) {
        double sum = linear.bias[static_cast<std::size_t>(c)];
        for (Index i = 0; i < width; ++i)
          sum += linear.weight[static_cast<std::size_t>(c * width + i)] *
                 x[static_cast<std::size_t>(row * width + i)];
        at(y, row / tokens, c / dim, row % tokens, c % dim) = static_cast<float>(sum);
      }
    return y;
  }

  /// Gradients of row 0 of a weight and of its first bias.
  std::pair<Doubles, double> gradients(const Tensor& dy) const {
    Doubles weight(width);
    double bias = 0;
    for (Index row = 0; row < samples() * tokens; ++row) {
      const double d = dy.data()[row / tokens * heads * tokens * dim + row % tokens * dim];
      bias += d;
      for (Index i = 0; i < width; ++i)
        weight[static_cast<std::size_t>(i)] += d * x[static_cast<std::size_t>(row * width + i)];
    }
    return {weight, bias};
  }
};

void expect_row(const Tensor& out, Index sample, Index token, std::initializer_list<double> want,
                const std::string& where) {
  Index c = 0;
  for (const double x : want) {
    const double got = out.data()[((sample * 2 + c / 4) * 4 + token) * 4 + c % 4];
    EXPECT_NEAR(got, x, 2e-6) << where << ", token " << token << ", column " << c;
    ++c;
  }
}

TEST(Longformer, PaddingSeesNothingAndIsSeenByNone) {
  const Published p(1);
  const Tensor q = p.project(0), k = p.project(1), v = p.project(2);
  for (const Context& context : every_isa()) {
    const Attended y =
        attend_longformer({.q = q, .k = k, .v = v},
                          {.window = 2, .classes = {local, local, padding, padding}}, context);
    const std::string at = context.isa();
    expect_row(
        y.out, 0, 0,
        {-0.226337, 0.226708, -0.320710, -0.184990, -0.192479, 0.053941, -0.219516, 0.110181}, at);
    expect_row(
        y.out, 0, 1,
        {-0.265978, 0.116922, -0.345852, -0.316708, -0.296568, 0.236831, -0.156061, 0.266820}, at);
    expect_row(y.out, 0, 2, {0, 0, 0, 0, 0, 0, 0, 0}, at);
  }
}

TEST(Longformer, GlobalTokensHaveProjectionsOfTheirOwn) {
  const Published p(2);
  const Tensor q = p.project(0), k = p.project(1), v = p.project(2);
  const Tensor qg = p.project(3), kg = p.project(4), vg = p.project(5);
  const LongformerOperands o{q, k, v, qg, kg, vg};
  const Longformer how{.window = 2,
                       .classes = {local, local, global, padding, local, global, global, global}};
  for (const Context& context : every_isa()) {
    const std::string at = context.isa();
    const Attended y = attend_longformer(o, how, context);
    expect_row(y.out, 0, 0,
               {0.050488, 0.457750, -0.016144, -0.275954, -0.067793, -0.049354, 0.026737, 0.114301},
               at);
    expect_row(y.out, 0, 2,
               {-0.164159, -0.175747, 0.211764, 0.318939, -0.369580, 0.365976, 0.013784, 0.166815},
               at);
    expect_row(y.out, 0, 3, {0, 0, 0, 0, 0, 0, 0, 0}, at);
    expect_row(y.out, 1, 0,
               {0.847142, 0.624351, 0.409989, -0.465724, -0.119946, -0.505156, 0.479754, -0.031861},
               at);
    expect_row(
        y.out, 1, 3,
        {-0.001072, 0.508379, -0.798916, -0.309804, -0.400627, -0.101874, 0.061199, 0.050699}, at);
    double loss = 0;
    for (const float x : y.out.numbers()) loss += 0.5 * static_cast<double>(x) * x;
    EXPECT_NEAR(loss, 3.40276452, 2e-6) << at;

    const LongformerGradients g = attend_longformer_backward(y.out, o, y, how, context);
    const auto expect = [&](const char* what, const Tensor& dy,
                            std::initializer_list<double> weight, double bias) {
      const auto [got, got_bias] = p.gradients(dy);
      std::size_t i = 0;
      for (const double x : weight) EXPECT_NEAR(got[i++], x, 3e-6) << what << " on " << at;
      EXPECT_NEAR(got_bias, bias, 3e-6) << what << " on " << at;
    };
    expect("query", g.dq, {0.015516, -0.548131, 0.089038, -0.161465}, -0.283310);
    expect("key", g.dk, {-0.291991, -0.303939, -0.253639, -0.435966}, 0);
    expect("value", g.dv, {-0.790665, 0.477322, -0.858355, -0.487361}, 0.953331);
    expect("query_global", g.dq_global, {-0.184310, -0.072096, -0.198939, -0.124766}, 0.208377);
    expect("key_global", g.dk_global, {0.278199, 0.333002, 0.260845, 0.443925}, 0);
    expect("value_global", g.dv_global, {0.023407, -0.245374, 0.021542, -0.051763}, -0.128459);
  }
}

/// Without classes it is a window, and nothing else.
TEST(Longformer, WithoutGlobalTokensItIsAWindow) {
  const Tensor q = random_tensor({2, 3, 150, 16}, 1), k = random_tensor({2, 3, 150, 16}, 2);
  const Tensor v = random_tensor({2, 3, 150, 16}, 3);
  for (const bool only_past : {false, true}) {
    const Attended want = attend(q, k, v, {.pattern = window(20, only_past ? 0 : 20)});
    EXPECT_SILENT(different_bits(
        "out", attend_longformer({q, k, v}, {.window = 20, .causal = only_past}).out.numbers(),
        want.out.numbers()));
  }
  const Attended wide = attend(q, k, v);
  EXPECT_SILENT(different_bits("out", attend_longformer({q, k, v}, {.window = 149}).out.numbers(),
                               wide.out.numbers()));
}

TEST(Longformer, EachHeadHasItsDilation) {
  const Tensor q = random_tensor({1, 2, 90, 8}, 1), k = random_tensor({1, 2, 90, 8}, 2);
  const Tensor v = random_tensor({1, 2, 90, 8}, 3);
  const Attended got = attend_longformer({q, k, v}, {.window = 7, .dilation = {1, 4}});
  const Attended near = attend(q, k, v, {.pattern = window(7, 7)});
  const Attended far = attend(q, k, v, {.pattern = dilated(4, 7, 7)});
  for (std::size_t i = 0; i < 90 * 8; ++i) {
    EXPECT_EQ(got.out.numbers()[i], near.out.numbers()[i]);
    EXPECT_EQ(got.out.numbers()[90 * 8 + i], far.out.numbers()[90 * 8 + i]);
  }
}

TEST(Longformer, TypesMayMixAndRowsAreChecked) {
  const Tensor q = random_tensor({1, 2, 40, 8}, 1), k = random_tensor({1, 2, 40, 8}, 2);
  const Tensor half = random_tensor({1, 2, 40, 8}, 3).converted(Type::bf16);
  const Tensor same = half.converted(Type::f32);
  std::vector<TokenClass> classes(40, local);
  classes[3] = global;
  const Longformer how{.window = 5, .classes = classes};
  const Attended got = attend_longformer({q, k, k, half, k, k}, how);
  const LongformerOperands o{q, k, k, same, k, k};
  const Attended want = attend_longformer(o, how);
  EXPECT_SILENT(different_bits("out", got.out.numbers(), want.out.numbers()));
  EXPECT_THROW(attend_longformer_backward(q, o, attend_longformer(o, {.window = 5}), how),
               std::invalid_argument);
}

TEST(Longformer, BackwardReadsAnOutputThatTheCallerHolds) {
  const Tensor q = random_tensor({1, 2, 40, 8}, 1), k = random_tensor({1, 2, 40, 8}, 2);
  const Longformer how{.window = 5};
  const LongformerOperands o{q, k, k};
  const Attended y = attend_longformer(o, how);
  const Tensor held = y.out.clone();
  const LongformerGradients got =
      attend_longformer_backward(q, o, AttendedView(held, y.rows, y.global_rows), how);
  EXPECT_SILENT(different_bits("dq", got.dq.numbers(),
                               attend_longformer_backward(q, o, y, how).dq.numbers()));
}

/// [1, 2, 40, 8] as [tokens, heads, dim] in memory.
struct Beside {
  Tensor memory = Tensor({40, 2, 8});
  AnyMutableView view() { return MutableView(memory.numbers(), {1, 2, 40, 8}, {640, 8, 16, 1}); }
};

TEST(Longformer, ResultsAreWrittenWhereTheCallerWants) {
  const Tensor q = random_tensor({1, 2, 40, 8}, 1), k = random_tensor({1, 2, 40, 8}, 2);
  std::vector<TokenClass> classes(40, local);
  classes[3] = classes[20] = global;
  const Longformer how{.window = 5, .classes = classes};
  const LongformerOperands o{q, k, k, k, q, k};
  const Attended want = attend_longformer(o, how);
  const LongformerGradients g = attend_longformer_backward(q, o, want, how);
  Beside out, dq, dk, dv, dq_global, dk_global, dv_global;
  const Attended got = attend_longformer_into(out.view(), o, how);
  EXPECT_TRUE(got.out.empty());
  attend_longformer_backward_into(
      {dq.view(), dk.view(), dv.view(), dq_global.view(), dk_global.view(), dv_global.view()}, q, o,
      {out.view(), got.rows, got.global_rows}, how);
  const auto compare = [](const char* name, Beside& one, const Tensor& other) {
    Tensor rows({1, 2, 40, 8});
    for (Index head = 0; head < 2; ++head)
      for (Index i = 0; i < 40; ++i)
        std::copy_n(one.memory.data() + i * 16 + head * 8, 8, rows.data() + (head * 40 + i) * 8);
    EXPECT_SILENT(different_bits(name, rows.numbers(), other.numbers()));
  };
  compare("out", out, want.out);
  compare("dq", dq, g.dq);
  compare("dk", dk, g.dk);
  compare("dv", dv, g.dv);
  compare("dq_global", dq_global, g.dq_global);
  compare("dk_global", dk_global, g.dk_global);
  compare("dv_global", dv_global, g.dv_global);
}

TEST(Longformer, DestinationsThatDoNotFitAreRefusedBeforeAnythingIsWritten) {
  const Tensor q = random_tensor({1, 2, 40, 8}, 1);
  const LongformerOperands o{q, q, q, q, q, q};
  std::vector<TokenClass> classes(40, local);
  classes[3] = global;
  const Longformer how{.window = 5, .classes = classes};
  const Attended y = attend_longformer(o, how);
  Tensor short_one({1, 2, 39, 8}), half({1, 2, 40, 8}, Type::bf16);
  expect_refused([&] { attend_longformer_into(short_one, o, how); }, {"out", "39", "40"});
  expect_refused([&] { attend_longformer_into(half, o, how); }, {"out is bf16", "f32"});
  Tensor a({1, 2, 40, 8}), b({1, 2, 40, 8}), c({1, 2, 40, 8}), d({1, 2, 40, 8}), e({1, 2, 40, 8});
  const auto backward = [&](AnyMutableView last) {
    attend_longformer_backward_into({a, b, c, d, e, last}, q, o, y, how);
  };
  expect_refused([&] { backward(half); }, {"dv_global is bf16", "f32 as v_global"});
  expect_refused([&] { backward(short_one); }, {"dv_global", "39", "40"});
  expect_refused([&] { backward({}); }, {"dv_global"});
  expect_refused([&] { backward(d); }, {"dq_global and dv_global", "same memory"});
  Tensor read = q.clone();
  const LongformerOperands mine{read, q, q, q, q, q};
  expect_refused(
      [&] {
        attend_longformer_backward_into({a, b, c, d, e, read}, q, mine, y, how);
      },
      {"overlaps the memory of q"});
  expect_refused([&] { attend_longformer_into(read, mine, how); }, {"overlaps the memory of q"});
  for (const float number : a.numbers()) EXPECT_EQ(number, 0.0f);
}

TEST(Longformer, MistakesAreNamed) {
  const Tensor q = random_tensor({2, 2, 5, 8}, 1);
  EXPECT_THROW(attend_longformer({q, q, q}, {.classes = {local}}), std::invalid_argument);
  EXPECT_THROW(attend_longformer({q, q, q}, {.classes = {global, local, local, local, local}}),
               std::invalid_argument);
  EXPECT_THROW(attend_longformer({q, q, q}, {.window = -1}), std::invalid_argument);
  EXPECT_THROW(attend_longformer({q, q, q}, {.dilation = {0}}), std::invalid_argument);
  EXPECT_THROW(attend_longformer({q, q, q}, {.dilation = {1, 2, 3}}), std::invalid_argument);
}

}  // namespace
}  // namespace rapt::test
