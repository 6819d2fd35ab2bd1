#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>

#include "support/engine.h"
#include "support/truth/bound.h"
#include "support/truth/definition.h"

// What must hold between two calls, whatever the numbers are (numerics.md 1.4).
namespace rapt::test {
namespace {

/// tensor[..., tokens, :] taken in another order, with repetitions if `order` has any.
Tensor taken(const Tensor& tensor, const std::vector<Index>& order) {
  const Shape& shape = tensor.shape();
  Tensor out({shape[0], shape[1], static_cast<Index>(order.size()), shape[3]});
  float* to = out.data();
  for (Index item = 0; item < shape[0]; ++item)
    for (Index head = 0; head < shape[1]; ++head)
      for (const Index token : order) {
        const float* row = tensor.view().row(item, head, token);
        to = std::copy(row, row + shape[3], to);
      }
  return out;
}

std::vector<Index> counted(Index n) {
  std::vector<Index> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

TEST(Metamorphic, TheOrderOfKeysDoesNotMatter) {
  const Small small({1, 2, 20, 16}, {1, 2, 150, 16});
  const Defined want = define(problem(small.q, small.k, small.v));
  std::vector<Index> order = counted(150);
  Random random(3);
  for (std::size_t i = 149; i > 0; --i)
    std::swap(order[i], order[static_cast<std::size_t>(random.below(static_cast<Index>(i) + 1))]);
  for (const Context& context : every_isa())
    EXPECT_WITHIN_BOUND(attend(small.q, taken(small.k, order), taken(small.v, order), {}, context),
                        want, "permuted keys on " + context.isa());
}

TEST(Metamorphic, EveryKeyTwiceIsEveryKeyOnce) {
  const Small small({1, 2, 20, 16}, {1, 2, 77, 16});
  const Truth want = define(problem(small.q, small.k, small.v)).out;
  std::vector<Index> order = counted(77), twice = order;
  twice.insert(twice.end(), order.begin(), order.end());
  for (const Context& context : every_isa()) {
    const Attended got = attend(small.q, taken(small.k, twice), taken(small.v, twice), {}, context);
    EXPECT_WITHIN_BOUND("out", got.out.numbers(), want, "doubled keys on " + context.isa());
  }
}

TEST(Metamorphic, MaskedKeysBehindTheLastOneChangeNoBit) {
  for (const Context& context : every_isa())
    for (const Index keys_count : {63, 64, 100, 300}) {
      Small small({1, 2, 40, 16}, {1, 1, keys_count, 16});
      const Answer want = small.answer(context);
      std::vector<Index> order = counted(keys_count);
      for (Index extra = 0; extra < 90; ++extra) order.push_back(extra % keys_count);
      small.k = taken(small.k, order), small.v = taken(small.v, order);
      small.how.pattern = keys(keys_count);
      const Answer got = small.answer(context);
      EXPECT_SAME_BITS(got.forward, want.forward) << context.isa();
      EXPECT_SAME_BITS("dq", got.backward.dq.numbers(), want.backward.dq.numbers());
      const auto size = static_cast<std::size_t>(keys_count * 16);
      EXPECT_SAME_BITS("dk", got.backward.dk.numbers().first(size), want.backward.dk.numbers());
      EXPECT_SAME_BITS("dv", got.backward.dv.numbers().first(size), want.backward.dv.numbers());
      for (const float number : got.backward.dk.numbers().subspan(size)) ASSERT_EQ(number, 0);
      for (const float number : got.backward.dv.numbers().subspan(size)) ASSERT_EQ(number, 0);
    }
}

TEST(Metamorphic, AMaskThatSaysWhatAPatternSaysChangesNoBit) {
  const Lengths lengths{130, 200};
  for (const Pattern& pattern : {full(), causal(), window(20, 3) | tokens({0, 100}),
                                 causal() & documents({70, 130}), dilated(3, 9, 2)}) {
    const auto may_see = std::make_unique<bool[]>(130 * 200);
    for (Index query = 0; query < lengths.queries; ++query)
      for (const Range& range : pattern.keys_of(query, lengths))
        std::fill(&may_see[query * 200 + range.begin], &may_see[query * 200 + range.end], true);
    for (const Context& context : every_isa()) {
      Small small({1, 2, 130, 8}, {1, 2, 200, 8});
      small.how.pattern = pattern;
      const Answer want = small.answer(context);
      small.how.pattern = mask({may_see.get(), 130 * 200}, 130, 200);
      const Answer got = small.answer(context);
      EXPECT_SAME_BITS(got.forward, want.forward) << to_string(pattern);
      EXPECT_SAME_BITS(got.backward, want.backward) << to_string(pattern);
    }
  }
}

TEST(Metamorphic, AConstantOnAllLogitsOnlyMovesTheLse) {
  for (const float constant : {-7.5f, 3.0f, 100.0f}) {
    Small small({1, 2, 20, 16}, {1, 2, 90, 16});
    const Doubles plain = define(problem(small.q, small.k, small.v)).lse.value;
    Tensor bias({1, 1, 1, 1});
    bias.numbers()[0] = constant;
    small.how.bias = dense_bias(bias);
    Defined want = define(problem(small.q, small.k, small.v, small.how));
    want.out.value = define(problem(small.q, small.k, small.v)).out.value;
    for (std::size_t row = 0; row < plain.size(); ++row)
      want.lse.value[row] = plain[row] + constant;
    for (const Context& context : every_isa())
      EXPECT_WITHIN_BOUND(attend(small.q, small.k, small.v, small.how, context), want,
                          "constant bias on " + context.isa());
  }
}

TEST(Metamorphic, PowersOfTwoPassThroughTheValues) {
  for (const float power : {0x1p-20f, 0.5f, 2.0f, 0x1p40f})
    for (const Context& context : every_isa()) {
      Small small({1, 2, 40, 16}, {1, 2, 150, 16});
      small.how.pattern = causal();
      const Attended want = attend(small.q, small.k, small.v, small.how, context);
      for (float& number : small.v.numbers()) number *= power;
      Attended got = attend(small.q, small.k, small.v, small.how, context);
      for (float& number : got.out.numbers()) number /= power;
      EXPECT_SAME_BITS(got, want) << power << " on " << context.isa();
    }
}

TEST(Metamorphic, HeadsAndItemsAreIndependent) {
  for (const Context& context : every_isa()) {
    Small small({2, 4, 70, 24}, {2, 2, 140, 24});
    small.how.pattern = causal() & window(90, 0);
    const Attended all = attend(small.q, small.k, small.v, small.how, context);
    for (Index item = 0; item < 2; ++item)
      for (Index head = 0; head < 4; ++head) {
        const Attended one = attend(slice(small.q, item, head), slice(small.k, item, head / 2),
                                    slice(small.v, item, head / 2), small.how, context);
        const Tensor& out = all.out;
        EXPECT_SAME_BITS("out", one.out.numbers(),
                         {out.view().row(item, head, 0), one.out.numbers().size()})
            << "item " << item << " head " << head << " on " << context.isa();
      }
  }
}

TEST(Metamorphic, GroupedHeadsAreRepeatedHeads) {
  for (const Context& context : every_isa()) {
    const Small small({2, 6, 70, 16}, {2, 2, 100, 16});
    Tensor k({2, 6, 100, 16}), v({2, 6, 100, 16});
    for (Index item = 0; item < 2; ++item)
      for (Index head = 0; head < 6; ++head)
        for (const auto& [from, to] : {std::pair{&small.k, &k}, std::pair{&small.v, &v}})
          std::copy_n(from->view().row(item, head / 3, 0), 1600, to->view().row(item, head, 0));
    EXPECT_SAME_BITS(attend(small.q, small.k, small.v, {}, context),
                     attend(small.q, k, v, {}, context))
        << context.isa();
  }
}

void expect_constant_values_come_back(Index keys_count) {
  for (const Context& context : every_isa())
    for (const float constant : {0.0f, 0.1f, -3.7f}) {
      Small small({1, 1, 3, 16}, {1, 1, keys_count, 16});
      for (float& number : small.v.numbers()) number = constant;
      const Attended got = attend(small.q, small.k, small.v, {}, context);
      for (const float number : got.out.numbers())
        ASSERT_LE(std::fabs(number - constant), 8 * u32 * std::fabs(constant)) << context.isa();
    }
}

TEST(Metamorphic, ConstantValuesComeBack) {
  for (const Index keys_count : {1, 7, 64, 1000, 16384})
    expect_constant_values_come_back(keys_count);
}

TEST(SlowMetamorphic, ConstantValuesComeBackFromAMillionKeys) {
  expect_constant_values_come_back(1 << 20);
}

/// tensor[..., first .. first + count - 1, :]
View tokens_of(const Tensor& tensor, Index first, Index count) {
  const View all = tensor.view();
  Shape shape = all.shape();
  shape[2] = count;
  return View::unchecked(all.row(0, 0, first), shape, all.strides());
}

TEST(Metamorphic, AnyChunksOfAPromptHaveTheBitsOfOneCallIfStrict) {
  constexpr Index tokens_count = 1200;  // more than one flush into f64
  Small small({1, 4, tokens_count, 24}, {1, 2, tokens_count, 24});
  const Tensor table = random_tensor({301, 24}, 9);
  for (const char* pattern :
       {"causal", "causal & window(100, 0)", "causal & (window(70, 0) | tokens({0}))"})
    for (const Bias& bias : {Bias{}, alibi(4) + relative_keys(table)})
      for (const Context& context : every_isa()) {
        small.how.pattern = Pattern::parse(pattern);
        small.how.bias = bias;
        small.how.strict = true;
        const Attended whole = attend(small.q, small.k, small.v, small.how, context);
        const Index chunks[] = {1, 1, 62, 1, 64, 3, 500, 1, 129, 1, 1, 400, 36};
        Index first = 0;
        for (const Index count : chunks) {
          const Attended part =
              attend(tokens_of(small.q, first, count), tokens_of(small.k, 0, first + count),
                     tokens_of(small.v, 0, first + count), small.how, context);
          for (Index head = 0; head < 4; ++head) {
            const auto rows = [&](const Tensor& all, Index queries, Index from, Index width) {
              return all.numbers().subspan(
                  static_cast<std::size_t>((head * queries + from) * width),
                  static_cast<std::size_t>(count * width));
            };
            ASSERT_EQ(different_bits("out", rows(part.out, count, 0, 24),
                                     rows(whole.out, tokens_count, first, 24)),
                      "")
                << pattern << ", " << count << " from " << first << " on " << context.isa();
            ASSERT_EQ(different_bits("lse", rows(part.lse, count, 0, 1),
                                     rows(whole.lse, tokens_count, first, 1)),
                      "");
          }
          first += count;
        }
        ASSERT_EQ(first, tokens_count);
      }
}

}  // namespace
}  // namespace rapt::test
