#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <thread>

#include "support/engine.h"
#include "support/truth/bound.h"
#include "support/truth/rope_truth.h"

namespace rapt::test {
namespace {

const RopeLayout layouts_of_pairs[] = {RopeLayout::half_split, RopeLayout::interleaved};
const Type types[] = {Type::f32, Type::bf16, Type::f16};

TEST(RopeApply, SixteenBitNumbersAreTheF32AnswerRoundedOnce) {
  std::uint64_t seed = 1;
  for (const RopeLayout layout : layouts_of_pairs)
    for (const Index dim : {16, 26, 64, 72})
      for (const Type from : types)
        for (const Type to : types) {
          const Rope rope({.dim = dim, .rotated = dim / 4 * 2, .layout = layout});
          const Tensor x = random_tensor({2, 3, 21, dim}, seed++).converted(from);
          for (const Context& context : every_isa()) {
            Tensor wide = x.converted(Type::f32), out(x.shape(), to);
            rope.apply(wide, 500, context);
            rope.apply_into(out, x, 500, context);
            EXPECT_SILENT(different_bits(to_string(from) + " to " + to_string(to),
                                         as_f32(out).numbers(),
                                         as_f32(wide.converted(to)).numbers()))
                << "dim " << dim << " on " << context.isa();
            if (from != to) continue;
            Tensor in_place = x.clone();
            rope.apply(in_place, 500, context);
            EXPECT_SILENT(
                different_bits("in place", as_f32(in_place).numbers(), as_f32(out).numbers()));
          }
        }
}

TEST(RopeApply, NanAndInfinityStayInTheirPairInEveryType) {
  for (const RopeLayout layout : layouts_of_pairs)
    for (const Type from : types)
      for (const Type to : types)
        for (const std::uint32_t bits : {0x7FFFFFFFu, 0xFFFF0000u, 0x7F810000u, 0x7F800000u}) {
          const Rope rope({.dim = 40, .layout = layout});
          Tensor numbers = random_tensor({1, 1, 3, 40}, 9);
          numbers.numbers()[40 + 7] = std::bit_cast<float>(bits);
          const Tensor x = numbers.converted(from);
          for (const Context& context : every_isa()) {
            Tensor y(x.shape(), to);
            rope.apply_into(y, x, 100, context);
            const Tensor got = as_f32(y);
            const Index partner = layout == RopeLayout::half_split ? 27 : 6;
            for (Index i = 0; i < 120; ++i)
              EXPECT_EQ(std::isfinite(got.numbers()[static_cast<std::size_t>(i)]),
                        i != 40 + 7 && i != 40 + partner)
                  << to_string(from) << " to " << to_string(to) << ' ' << bits << " on "
                  << context.isa();
          }
        }
}

/// [batch, heads, tokens, dim] in memory that is larger, every other number NaN.
struct Placed {
  Placed(const Tensor& x, Shape strides_, Index first)
      : memory(20000, std::numeric_limits<float>::quiet_NaN()), strides(strides_) {
    view = MutableView::unchecked(memory.data() + first, x.shape(), strides);
    each([&](float& number, Index at) { number = x.numbers()[static_cast<std::size_t>(at)]; });
  }

  template <class Visit>
  void each(const Visit& visit) {
    Index at = 0;
    for (Index item = 0; item < view.batch(); ++item)
      for (Index head = 0; head < view.heads(); ++head)
        for (Index token = 0; token < view.tokens(); ++token)
          for (Index c = 0; c < view.dim(); ++c) visit(view.row(item, head, token)[c], at++);
  }

  std::vector<float> memory;
  Shape strides;
  MutableView view;
};

TEST(RopeApply, StridesAreFreeAndGapsUntouched) {
  const Tensor x = random_tensor({2, 3, 37, 20}, 3);
  const Index numbers = 2 * 3 * 37 * 20;
  for (const RopeLayout layout : layouts_of_pairs) {
    const Rope rope({.dim = 20, .layout = layout});
    for (const Context& context : every_isa()) {
      Tensor want = x.clone();
      rope.apply(want, 9, context);
      for (const auto& [strides, first] : std::vector<std::pair<Shape, Index>>{
               {{3 * 37 * 20, 20, 60, 1}, 0},       // [batch, tokens, heads, dim]
               {{3 * 37 * 23, 37 * 23, 23, 1}, 5},  // gaps behind rows, odd addresses
               {{60 * 37 * 3, 20, 180, 1}, 0},      // one of three fused projections
               {{3 * 37 * 20, 37 * 20, -20, 1}, 36 * 20},
               {{-3 * 37 * 20, 37 * 20, 20, 1}, 3 * 37 * 20}}) {
        Placed placed(x, strides, first);
        const auto nans = [&] {
          return std::count_if(placed.memory.begin(), placed.memory.end(),
                               [](float number) { return std::isnan(number); });
        };
        const auto before = nans();
        EXPECT_EQ(before, 20000 - numbers);
        rope.apply(placed.view, 9, context);
        EXPECT_EQ(nans(), before) << to_string(strides);
        Tensor got(x.shape());
        placed.each([&](float& number, Index at) { got.data()[at] = number; });
        EXPECT_SILENT(different_bits(to_string(strides), got.numbers(), want.numbers()))
            << context.isa();
        Tensor apart(x.shape());
        rope.apply_into(apart, Placed(x, strides, first).view, 9, context);
        EXPECT_SILENT(different_bits("apart", apart.numbers(), want.numbers()));
      }
    }
  }
}

/// The rope at explicit positions, item by item and token by token.
Tensor one_by_one(const Rope& rope, const Tensor& x,
                  const std::function<Index(Index item, Index token)>& position) {
  Tensor y = x.clone();
  for (Index item = 0; item < x.shape()[0]; ++item)
    for (Index token = 0; token < x.shape()[2]; ++token) {
      const MutableView all = y.view();
      rope.apply(MutableView::unchecked(all.row(item, 0, token), {1, all.heads(), 1, all.dim()},
                                        all.strides()),
                 position(item, token));
    }
  return y;
}

TEST(RopeApply, EveryFormOfPositionsMeansTheSame) {
  const Tensor x = random_tensor({3, 2, 150, 16}, 4);
  const Rope rope({.dim = 16});
  const auto expect = [&](const Positions& positions,
                          const std::function<Index(Index, Index)>& position) {
    Tensor got = x.clone();
    rope.apply(got, positions);
    EXPECT_SILENT(
        different_bits("positions", got.numbers(), one_by_one(rope, x, position).numbers()));
  };
  expect({}, [](Index, Index token) { return token; });
  expect(1000, [](Index, Index token) { return 1000 + token; });
  expect(-70, [](Index, Index token) { return token - 70; });
  expect((1 << 20) - 75, [](Index, Index token) { return (1 << 20) - 75 + token; });
  const std::vector<Index> firsts{7, 0, 100000};
  expect(Positions::from(firsts), [&](Index item, Index token) { return firsts[item] + token; });
  Random random(5);
  std::vector<Index> each(450), shared(150);
  for (Index& position : each) position = random.below(3000000) - 1000;
  for (Index& position : shared) position = random.below(5000);
  expect(Positions::list(each), [&](Index item, Index token) { return each[item * 150 + token]; });
  expect(Positions::list(shared), [&](Index, Index token) { return shared[token]; });
}

/// They outlive the tests: work so short is over before all helpers have heard of it.
const std::vector<Context>& crews() {
  static const std::vector<Context> all{Context(1), Context(2), Context(3), Context(7)};
  return all;
}

TEST(RopeApply, TheNumberOfThreadsChangesNoBit) {
  for (const RopeLayout layout : layouts_of_pairs)
    for (const Shape& shape : {Shape{2, 4, 300, 64}, Shape{70, 8, 1, 128}, Shape{1, 1, 5000, 16}}) {
      const Rope rope({.dim = shape[3], .layout = layout});
      const Tensor x = random_tensor(shape, 6);
      Tensor want = x.clone();
      rope.apply(want, 11, crews().front());
      for (const Context& context : crews()) {
        Tensor got = x.clone();
        Rope({.dim = shape[3], .layout = layout}).apply(got, 11, context);
        EXPECT_SILENT(different_bits("threads", got.numbers(), want.numbers()))
            << context.threads();
      }
    }
}

TEST(RopeApply, ManyThreadsMayGrowOneRope) {
  const Tensor x = random_tensor({1, 2, 700, 32}, 7);
  const Rope shared({.dim = 32});
  std::vector<Tensor> got(4);
  std::vector<std::thread> threads;
  for (Index i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      got[static_cast<std::size_t>(i)] = x.clone();
      shared.apply(got[static_cast<std::size_t>(i)], i * 300, crews()[1]);
    });
  for (std::thread& thread : threads) thread.join();
  for (Index i = 0; i < 4; ++i) {
    Tensor want = x.clone();
    Rope({.dim = 32}).apply(want, i * 300);
    EXPECT_SILENT(
        different_bits("shared", got[static_cast<std::size_t>(i)].numbers(), want.numbers()));
  }
}

TEST(RopeApply, ShiftMovesRotatedKeys) {
  const Tensor x = random_tensor({2, 2, 80, 64}, 8);
  for (const RopeScaling& scaling :
       {RopeScaling{}, RopeScaling{LinearRope{4}}, RopeScaling{YarnRope{.factor = 16}},
        RopeScaling{Llama3Rope{}}, RopeScaling{NtkRope{4}}})
    for (const Index distance : {-100, 0, 1, 5000}) {
      const Rope rope({.dim = 64, .scaling = scaling});
      Tensor moved = x.clone(), want = x.clone();
      rope.apply(moved, 200);
      rope.shift(moved, distance);
      rope.apply(want, 200 + distance);
      const Doubles truth = doubles(want);
      EXPECT_SILENT(far_from(truth, moved, "shift by " + std::to_string(distance), 3));
    }
}

TEST(RopeApply, EmptyBatchesAndTokensAreFine) {
  const Rope rope({.dim = 8});
  for (const Shape& shape : {Shape{0, 2, 3, 8}, Shape{2, 0, 3, 8}, Shape{2, 2, 0, 8}}) {
    Tensor x(shape);
    EXPECT_NO_THROW(rope.apply(x));
  }
}

}  // namespace
}  // namespace rapt::test
