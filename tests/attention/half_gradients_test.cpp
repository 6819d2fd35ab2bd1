#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "rapt/bigbird.h"
#include "rapt/longformer.h"
#include "rapt/lsh.h"
#include "rapt/reformer_local.h"
#include "support/engine.h"
#include "support/refused.h"
#include "support/truth/bound.h"

// Gradients of 16-bit operands. Where a row attends to one key, sum(dout * out) cancels against the
// gradient of that key's probability, and an output rounded to 16 bits would be all that is left.
namespace rapt::test {
namespace {

struct Operands16 {
  Operands16(const Shape& shape, Type type) : Operands16(shape, shape, type) {}
  Operands16(const Shape& queries, const Shape& keys, Type type)
      : q(random_tensor(queries, 1).converted(type)),
        k(random_tensor(keys, 2).converted(type)),
        v(random_tensor(keys, 3).converted(type)),
        dout(random_tensor(queries, 4).converted(type)) {}
  Operands16 wide() const {
    Operands16 all;
    all.q = q.converted(Type::f32), all.k = k.converted(Type::f32);
    all.v = v.converted(Type::f32), all.dout = dout.converted(Type::f32);
    return all;
  }

  Tensor q, k, v, dout;

 private:
  Operands16() = default;
};

/// The median over rows of |got - want| / |want|, both as vectors.
double median_error(const Tensor& got, const Truth& want, Index dim) {
  const Tensor wide = got.converted(Type::f32);
  std::vector<double> errors;
  for (std::size_t row = 0; row < want.value.size(); row += static_cast<std::size_t>(dim)) {
    double error = 0, size = 0;
    for (std::size_t i = row; i < row + static_cast<std::size_t>(dim); ++i) {
      const double off = static_cast<double>(wide.numbers()[i]) - want.value[i];
      error += off * off;
      size += want.value[i] * want.value[i];
    }
    if (size > 0) errors.push_back(std::sqrt(error / size));
  }
  std::nth_element(errors.begin(), errors.begin() + std::ssize(errors) / 2, errors.end());
  return errors[errors.size() / 2];
}

std::vector<Context> every_context() {
  std::vector<Context> all = every_isa();
  all.insert(all.end(), every_bf16_isa().begin(), every_bf16_isa().end());
  return all;
}

TEST(HalfGradients, NearlyOneHotRowsAreAsExactAsTheirType) {
  const Attention how{.pattern = causal(), .scale = Scale::value(2)};
  for (const auto& [type, u] : {std::pair(Type::bf16, 0x1p-8), std::pair(Type::f16, 0x1p-11)}) {
    const Operands16 o({1, 2, 150, 32}, type), wide = o.wide();
    const Problem p = problem(wide.q, wide.k, wide.v, how);
    const DefinedGradients want = define_gradients(p, doubles(wide.dout.view()));
    for (const Context& context : every_context()) {
      const Attended y = attend(o.q, o.k, o.v, how, context);
      const Gradients g = attend_backward(o.dout, o.q, o.k, o.v, y, how, context);
      EXPECT_LE(median_error(g.dq, want.dq, 32), u) << to_string(type) << " on " << context.isa();
      EXPECT_LE(median_error(g.dk, want.dk, 32), u) << to_string(type) << " on " << context.isa();
      EXPECT_LE(median_error(g.dv, want.dv, 32), u) << to_string(type) << " on " << context.isa();
    }
  }
}

/// Every element of a row that sees few keys, one of them nearly alone, against a bound of f32.
TEST(HalfGradients, AreWithinTheF32BoundAndOneRoundingWhereOperandsAreWidened) {
  const Attention how{.pattern = causal(), .scale = Scale::value(2)};
  const Operands16 o({1, 2, 130, 32}, Type::f16), wide = o.wide();
  DefinedGradients want =
      define_gradients(problem(wide.q, wide.k, wide.v, how), doubles(wide.dout.view()));
  for (Truth* truth :
       {&want.dq, &want.dk, &want.dv})  // one rounding, and steps of 2^-24 below 2^-14
    for (std::size_t i = 0; i < truth->value.size(); ++i)
      truth->slack.push_back(0x1p-11 * std::fabs(truth->value[i]) + 0x1p-25);
  for (const Context& context : every_isa()) {
    const Attended y = attend(o.q, o.k, o.v, how, context);
    Gradients g = attend_backward(o.dout, o.q, o.k, o.v, y, how, context);
    for (Tensor* part : {&g.dq, &g.dk, &g.dv}) *part = part->converted(Type::f32);
    EXPECT_WITHIN_BOUND(g, want, std::string("f16 on ") + context.isa());
  }
}

/// The same bits as f32 operands of the same numbers give, rounded once.
void expect_rounded_once(const char* what, const Gradients& got, const Gradients& wide, Type type,
                         const Context& context) {
  for (const auto part : {&Gradients::dq, &Gradients::dk, &Gradients::dv})
    EXPECT_SILENT(different_bits(what, (got.*part).converted(Type::f32).numbers(),
                                 (wide.*part).converted(type).converted(Type::f32).numbers()))
        << to_string(type) << " on " << context.isa();
}

TEST(HalfGradients, OfHashedAttentionAreTheF32OnesRoundedOnce) {
  const Attention how{.pattern = lsh({.chunk = 16, .rounds = 2, .keys = Lsh::Keys::separate}),
                      .scale = Scale::value(2)};
  const Operands16 o({2, 2, 100, 16}, Type::f16), wide = o.wide();
  for (const Context& context : every_isa()) {
    const auto gradients = [&](const Operands16& x) {
      const Attended y = attend(x.q, x.k, x.v, how, context);
      return attend_backward(x.dout, x.q, x.k, x.v, y, how, context);
    };
    expect_rounded_once("lsh", gradients(o), gradients(wide), Type::f16, context);
  }
}

TEST(HalfGradients, OfBigBirdAreTheF32OnesRoundedOnce) {
  const BigBird how{.block = 16, .first_block_counts = 2, .scale = Scale::value(2)};
  const Operands16 o({2, 2, 100, 16}, Type::f16), wide = o.wide();
  for (const Context& context : every_isa()) {
    const auto gradients = [&](const Operands16& x) {
      const Attended y = attend_bigbird(x.q, x.k, x.v, how, context);
      return attend_bigbird_backward(x.dout, x.q, x.k, x.v, y, how, context);
    };
    expect_rounded_once("bigbird", gradients(o), gradients(wide), Type::f16, context);
  }
}

TEST(HalfGradients, OfReformersLocalAttentionAreTheF32OnesRoundedOnce) {
  Operands16 o({2, 2, 100, 16}, Type::f16);
  for (F16& x : o.q.numbers<F16>()) x = F16(8 * static_cast<float>(x));  // it has no scale
  const Operands16 wide = o.wide();
  for (const Index chunk : {16, 64})  // a ring of many, and one that repeats itself
    for (const Context& context : every_isa()) {
      const ReformerLocal how{.chunk = chunk, .before = 1, .after = 1};
      const auto gradients = [&](const Operands16& x) {
        const Attended y = attend_reformer_local(x.q, x.k, x.v, how, context);
        return attend_reformer_local_backward(x.dout, x.q, x.k, x.v, y, how, context);
      };
      expect_rounded_once("local", gradients(o), gradients(wide), Type::f16, context);
    }
}

TEST(HalfGradients, OfLongformerAreTheF32OnesRoundedOnce) {
  const Operands16 o({2, 2, 100, 16}, Type::f16), wide = o.wide();
  Longformer how{.window = 8, .scale = Scale::value(2)};
  how.classes.assign(100, TokenClass::local);
  how.classes[0] = how.classes[50] = TokenClass::global;
  for (const Context& context : every_isa()) {
    const auto gradients = [&](const Operands16& x) {
      const LongformerOperands six{x.q, x.k, x.v, x.k, x.q, x.v};
      return attend_longformer_backward(x.dout, six, attend_longformer(six, how, context), how,
                                        context);
    };
    const LongformerGradients got = gradients(o), want = gradients(wide);
    using Part = Tensor LongformerGradients::*;
    for (const Part part : {&LongformerGradients::dq, &LongformerGradients::dk,
                            &LongformerGradients::dv, &LongformerGradients::dq_global,
                            &LongformerGradients::dk_global, &LongformerGradients::dv_global})
      EXPECT_SILENT(
          different_bits("longformer", (got.*part).converted(Type::f32).numbers(),
                         (want.*part).converted(Type::f16).converted(Type::f32).numbers()))
          << context.isa();
  }
}

template <class How, class Forward>
void expect_nothing_kept(const char* name, How how, const Forward& forward) {
  for (const Context& context : every_isa()) {
    how.gradients = true;
    const auto [want, kept] = forward(how, context);
    how.gradients = false;
    const auto [got, nothing] = forward(how, context);
    EXPECT_NE(kept.out, nullptr) << name;
    EXPECT_EQ(nothing.out, nullptr) << name << " on " << context.isa();
    EXPECT_SILENT(different_bits(name, got.converted(Type::f32).numbers(),
                                 want.converted(Type::f32).numbers()))
        << context.isa();
  }
}

TEST(HalfGradients, NothingIsKeptForThemWhereNobodyAsks) {
  const Operands16 o({2, 2, 100, 16}, Type::f16);
  Longformer longformer{.window = 8};
  longformer.classes.assign(100, TokenClass::local);
  longformer.classes[0] = longformer.classes[50] = TokenClass::global;
  using Kept = std::pair<Tensor, Rows>;
  expect_nothing_kept("longformer", longformer, [&](const Longformer& how, const Context& context) {
    Attended y = attend_longformer({o.q, o.k, o.v, o.k, o.q, o.v}, how, context);
    return Kept(std::move(y.out), std::move(y.rows));
  });
  expect_nothing_kept("bigbird", BigBird{.block = 16}, [&](const BigBird& how, const Context& c) {
    Attended y = attend_bigbird(o.q, o.k, o.v, how, c);
    return Kept(std::move(y.out), std::move(y.rows));
  });
  for (const Index chunk : {16, 64})
    expect_nothing_kept("local", ReformerLocal{.chunk = chunk, .after = 1},
                        [&](const ReformerLocal& how, const Context& context) {
                          Attended y = attend_reformer_local(o.q, o.k, o.v, how, context);
                          return Kept(std::move(y.out), std::move(y.rows));
                        });
}

/// What docs/exactness.md promises a caller who keeps the rounded output alone: u16 of p sum |dout|
/// |out| for the gradient of each logit, besides.
TEST(HalfGradients, OfARoundedOutputAreWithinItsRounding) {
  const Attention how{.pattern = causal(), .scale = Scale::value(2), .gradients = false};
  const Operands16 o({1, 1, 120, 32}, Type::bf16), wide = o.wide();
  DefinedGradients want =
      define_gradients(problem(wide.q, wide.k, wide.v, how), doubles(wide.dout.view()));
  for (Truth* truth : {&want.dq, &want.dk, &want.dv})
    for (std::size_t i = 0; i < truth->value.size(); ++i)
      truth->slack.push_back(u16 * (1 + 0x1p-6) *
                             (truth->rounding[i] + truth->size[i] + std::fabs(truth->value[i])));
  for (const Context& context : every_context()) {
    const Attended y = attend(o.q, o.k, o.v, how, context);
    EXPECT_EQ(y.rows.out, nullptr);
    Gradients g = attend_backward(o.dout, o.q, o.k, o.v, y, how, context);
    for (Tensor* part : {&g.dq, &g.dk, &g.dv}) *part = part->converted(Type::f32);
    EXPECT_WITHIN_BOUND(g, want, std::string("a rounded output on ") + context.isa());
  }
}

TEST(HalfGradients, TheOutputIsKeptOnlyIfItWasRounded) {
  const Operands16 o({1, 1, 5, 8}, Type::bf16), wide = o.wide();
  EXPECT_EQ(attend(wide.q, wide.k, wide.v).rows.out, nullptr);
  Tensor out({1, 1, 5, 8});
  EXPECT_EQ(attend_into(out, o.q, o.k, o.v).rows.out, nullptr);
  const Attended y = attend(o.q, o.k, o.v);
  ASSERT_NE(y.rows.out, nullptr);
  EXPECT_SILENT(different_bits("out", y.rows.out->numbers(), out.numbers()));
  EXPECT_SILENT(different_bits("rounded", y.out.converted(Type::f32).numbers(),
                               out.converted(Type::bf16).converted(Type::f32).numbers()));
}

TEST(HalfGradients, AnOutputOfAnotherCallIsRefused) {
  const Operands16 o({1, 1, 5, 8}, Type::bf16);
  Attended y = attend(o.q, o.k, o.v);
  y.rows.out = std::make_shared<Tensor>(Shape{1, 1, 5, 4});
  expect_refused([&] { attend_backward(o.dout, o.q, o.k, o.v, y); },
                 {"[1, 1, 5, 4]", "[1, 1, 5, 8]", "rows"});
}

}  // namespace
}  // namespace rapt::test
