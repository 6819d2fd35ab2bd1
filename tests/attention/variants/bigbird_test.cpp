#include "rapt/bigbird.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/torch_random.h"
#include "support/engine.h"
#include "support/refused.h"
#include "support/truth/bound.h"

namespace rapt::test {
using namespace detail;
namespace {

/// Inputs as torch draws them from seed 1: 2 items, 2 heads, 32 tokens in blocks of four; the
/// second item has padding in its first block and at its end.
struct Drawn {
  Tensor q{{2, 2, 32, 8}}, k{{2, 2, 32, 8}}, v{{2, 2, 32, 8}};
  BigBird how{.block = 4};

  Drawn() {
    TorchRandom random(1);
    for (Tensor* x : {&q, &k, &v}) random.normal(x->numbers());
    how.attention_mask.assign(64, 1);
    how.attention_mask[32 + 2] = 0;
    std::fill(how.attention_mask.begin() + 32 + 27, how.attention_mask.end(), std::uint8_t{0});
  }
};

void expect_row(const Tensor& x, Index item, Index head, Index token, const Doubles& want,
                const std::string& what) {
  for (std::size_t c = 0; c < want.size(); ++c)
    EXPECT_NEAR(x.data()[((item * 2 + head) * 32 + token) * 8 + static_cast<Index>(c)], want[c],
                2e-6)
        << what << ' ' << item << ' ' << head << ' ' << token << ' ' << c;
}

// Numbers of Transformers' BigBirdBlockSparseAttention, gradients those of half the sum of squares.
TEST(BigBird, IsThatOfTransformersAtInference) {
  Drawn d;
  d.how.first_block_counts = 2;  // 1 + one random block
  for (const Context& context : every_isa()) {
    const Attended y = attend_bigbird(d.q, d.k, d.v, d.how, context);
    expect_row(y.out, 0, 0, 0, {-0.14625052, 0.40880218, -0.03707524, -0.21498226}, "out");
    expect_row(y.out, 0, 1, 9, {-0.06715819, 0.43906412, -0.49093196, 0.53393209}, "out");
    expect_row(y.out, 1, 0, 31, {0, 0, 0, 0}, "out");
    expect_row(y.out, 1, 1, 20, {0.08886959, 0.18924859, -0.10438476, -0.22840813}, "out");
    expect_row(y.out, 1, 0, 5, {-0.53767645, -0.02978285, -0.10095279, 0.05795836}, "out");
    const Gradients g = attend_bigbird_backward(y.out, d.q, d.k, d.v, y, d.how, context);
    expect_row(g.dq, 0, 1, 9, {0.05017488, 0.06841810, -0.05385647, 0.03525455}, "dq");
    expect_row(g.dk, 0, 0, 1, {-0.02255386, 0.67724091, -0.41947958, -0.37751976}, "dk");
    expect_row(g.dk, 1, 1, 2, {0, 0, 0, 0}, "dk");
    expect_row(g.dk, 1, 1, 13, {-0.00037237, 0.02245205, 0.01817207, 0.05369811}, "dk");
    expect_row(g.dv, 0, 1, 3, {-0.33946970, -0.42624730, 0.13105384, 1.53596914}, "dv");
    expect_row(g.dv, 1, 0, 24, {-0.30819535, 0.33614472, -0.31462726, 0.08653814}, "dv");
  }
}

TEST(BigBird, IsThatOfTransformersInTrainingWithItsRandomBlocks) {
  Drawn d;
  d.how.random = {{{}, {4}, {4}, {5}, {2}, {3}, {1}}, {{}, {4}, {5}, {5}, {2}, {2}, {1}}};
  for (const Context& context : every_isa()) {
    const Attended y = attend_bigbird(d.q, d.k, d.v, d.how, context);
    expect_row(y.out, 0, 0, 0, {-0.14625052, 0.40880218, -0.03707524, -0.21498226}, "out");
    expect_row(y.out, 0, 1, 9, {-0.29515311, 0.39998442, -0.34631634, 0.58142966}, "out");
    expect_row(y.out, 1, 1, 20, {0.55711299, 0.10227413, -0.03227894, -0.06216653}, "out");
    expect_row(y.out, 1, 0, 5, {-0.65851218, 0.79415107, -0.32962888, 0.21720219}, "out");
    const Gradients g = attend_bigbird_backward(y.out, d.q, d.k, d.v, y, d.how, context);
    expect_row(g.dq, 0, 1, 9, {0.09082625, 0.07592918, -0.01724610, -0.01623059}, "dq");
    expect_row(g.dk, 0, 0, 1, {-0.00233454, 0.25147390, -0.05158554, -0.20629418}, "dk");
    expect_row(g.dk, 1, 1, 13, {-0.03212441, -0.03385910, 0.02021469, 0.01484219}, "dk");
    expect_row(g.dv, 0, 1, 3, {-0.05726730, -0.13816194, 0.03310009, 0.68446302}, "dv");
    expect_row(g.dv, 1, 0, 24, {-0.27896017, 0.22169012, -0.20287257, -0.02243135}, "dv");
  }
}

/// Blocks of the definition, for lengths of no particular size and few blocks.
TEST(BigBird, ThePatternIsItsDefinition) {
  const BigBird how{.block = 3, .random = {{{}, {5}, {0, 6}, {}, {1}}}};
  for (const Index tokens : {21, 23}) {
    const Index count = (tokens + 2) / 3;
    const Pattern pattern = bigbird(how, tokens);
    for (Index i = 0; i < tokens; ++i)
      for (Index j = 0; j < tokens; ++j) {
        const Index row = i / 3, column = j / 3;
        bool want = row == 0 || row == count - 1 || column == 0 || column == count - 1 ||
                    std::abs(row - column) <= 1;
        want |= (row == 1 && column == 5) || (row == 2 && column == 6) || (row == 4 && column == 1);
        bool got = false;
        for (const Range& r : pattern.keys_of(i, {tokens, tokens}))
          got |= r.begin <= j && j < r.end;
        EXPECT_EQ(got, want) << tokens << ' ' << i << ' ' << j;
      }
  }
  for (const Index tokens : {0, 1, 3, 4, 6, 7, 9})  // at most three blocks see everything
    for (Index i = 0; i < tokens; ++i)
      EXPECT_EQ(bigbird({.block = 3}, tokens).keys_of(i, {tokens, tokens}),
                full().keys_of(i, {tokens, tokens}));
}

/// A first block that counts n times is one whose keys are written down n times.
TEST(BigBird, TheFirstBlockCountsAsOftenAsAsked) {
  for (const Index tokens : {5, 8, 13, 22}) {
    const Tensor q = random_tensor({1, 1, tokens, 8}, 1), k = random_tensor({1, 1, tokens, 8}, 2);
    const Tensor v = random_tensor({1, 1, tokens, 8}, 3);
    const BigBird how{.block = 4, .first_block_counts = 3};
    const Attended got = attend_bigbird(q, k, v, how);
    Tensor bias({1, 1, tokens, tokens});
    const Index last = (tokens - 1) / 4;
    for (Index i = 0; i < tokens; ++i)
      for (Index j = 0; j < tokens && j < 4; ++j)
        if (i / 4 > 0 && i / 4 < last) bias.data()[i * tokens + j] = std::log(3.0f);
    const Attended want =
        attend(q, k, v, {.pattern = bigbird(how, tokens), .bias = dense_bias(bias)});
    for (std::size_t i = 0; i < want.out.numbers().size(); ++i)
      ASSERT_NEAR(got.out.numbers()[i], want.out.numbers()[i], 1e-6) << tokens;
    for (std::size_t i = 0; i < want.lse.numbers().size(); ++i)
      ASSERT_NEAR(got.lse.numbers()[i], want.lse.numbers()[i], 1e-6) << tokens;
  }
}

/// Gradients of keys come from three calls, and are rounded once.
TEST(BigBird, GradientsOf16BitsAreThoseOfF32Rounded) {
  const BigBird how{.block = 8, .first_block_counts = 3};
  const Tensor q = random_tensor({1, 2, 61, 8}, 1).converted(Type::bf16);
  const Tensor v = random_tensor({1, 2, 61, 8}, 2).converted(Type::bf16);
  const Tensor wide_q = q.converted(Type::f32), wide_v = v.converted(Type::f32);
  const Attended y = attend_bigbird(wide_q, wide_q, wide_v, how);
  Attended narrow, again;
  narrow.rows = again.rows = y.rows;
  narrow.out = y.out.converted(Type::bf16);
  again.out = narrow.out.converted(Type::f32);
  const Gradients want = attend_bigbird_backward(wide_v, wide_q, wide_q, wide_v, again, how);
  const Gradients got = attend_bigbird_backward(v, q, q, v, narrow, how);
  const auto same = [](const Tensor& a, const Tensor& b) {
    return std::memcmp(AnyView(a).data(), AnyView(b.converted(Type::bf16)).data(),
                       static_cast<std::size_t>(2 * a.elements())) == 0;
  };
  EXPECT_TRUE(same(got.dq, want.dq));
  EXPECT_TRUE(same(got.dk, want.dk));
  EXPECT_TRUE(same(got.dv, want.dv));
}

TEST(BigBird, MistakesAreNamed) {
  const Tensor q = random_tensor({2, 2, 20, 8}, 1);
  const auto refuse = [&](const BigBird& how, const std::vector<std::string>& words) {
    expect_refused([&] { attend_bigbird(q, q, q, how); }, words);
  };
  refuse({.block = 0}, {"block is 0"});
  refuse({.block = 4, .random = {{{}, {9}}}}, {"random block 9", "0 to 4"});
  refuse({.block = 4, .random = {{}, {}, {}}}, {"3 tables", "2 (heads)"});
  refuse({.block = 4, .random = {{{}, {}, {}, {}, {}, {}}}}, {"6", "at most 5"});
  refuse({.block = 4, .first_block_counts = 0}, {"first_block_counts is 0"});
  refuse({.block = 4, .attention_mask = {1, 1}}, {"2 numbers in attention_mask", "20", "40"});
  expect_refused([&] { bigbird({.block = 4, .random = {{}, {}}}, 20, 2); }, {"head is 2"});
  expect_refused([&] { bigbird({.block = 4}, -1); }, {"-1 tokens"});
  const Attended y = attend_bigbird(q, q, q, {.block = 4});
  const Tensor other = random_tensor({2, 2, 19, 8}, 1);
  expect_refused([&] { attend_bigbird_backward(other, q, q, q, y, {.block = 4}); }, {"dout"});
}

/// LED's decoder: tokens written so far see each other causally and all of the encoder's real
/// tokens, whose number differs from item to item. No global token, no window.
TEST(LedDecoder, IsCausalAttentionAndAttentionOverRealTokens) {
  Small self({2, 2, 7, 8}, {2, 2, 7, 8});
  self.how.pattern = causal();
  EXPECT_WITHIN_BOUND(self, "LED self-attention");
  Small cross({2, 2, 7, 8}, {2, 2, 19, 8}, 5);
  Tensor hidden({2, 1, 1, 19});
  for (Index j = 15; j < 19; ++j) hidden.data()[19 + j] = -std::numeric_limits<float>::infinity();
  cross.how.bias = dense_bias(hidden);
  EXPECT_WITHIN_BOUND(cross, "LED cross-attention");
  // One item alone says the same with a pattern.
  const Answer both = cross.answer();
  const auto second = [](const Tensor& x) {
    Shape shape = x.shape();
    shape[0] = 1;
    Tensor y(shape);
    std::copy_n(x.data() + y.elements(), y.elements(), y.data());
    return y;
  };
  const Attended one =
      attend(second(cross.q), second(cross.k), second(cross.v), {.pattern = keys(15)});
  for (std::size_t i = 0; i < one.out.numbers().size(); ++i)
    EXPECT_NEAR(one.out.numbers()[i], second(both.forward.out).numbers()[i], 1e-6);
}

}  // namespace
}  // namespace rapt::test
