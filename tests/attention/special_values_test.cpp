#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>
#include <memory>

#include "support/engine.h"
#include "support/special_values.h"
#include "support/truth/bound.h"
#include "support/truth/definition.h"

// The special-value contract of numerics.md 1.5, a row a test.
namespace rapt::test {
namespace {

void fill_row(Tensor& tensor, Index head, Index token, float number) {
  for (Index t = 0; t < tensor.shape()[3]; ++t) at(tensor, 0, head, token, t) = number;
}

/// Patterns of 130 queries and 70 keys that leave rows without a key: first, last, mid-tile.
std::vector<Pattern> patterns_with_empty_rows() {
  const std::vector<Index> holes = {3, 64, 129};
  const auto may_see = std::make_unique<bool[]>(130 * 70);
  for (Index pair = 0; pair < 130 * 70; ++pair)
    may_see[static_cast<std::size_t>(pair)] =
        std::find(holes.begin(), holes.end(), pair / 70) == holes.end();
  return {causal(),
          keys(0),
          window(5, 2),
          documents({20, 0, 30}),
          documents({40, 10, 64}, {0, 30, 40}),
          mask({may_see.get(), 130 * 70}, 130, 70)};
}

TEST(SpecialValues, ARowThatSeesNothingIsExactlyZero) {
  for (const Pattern& pattern : patterns_with_empty_rows()) {
    Small small({1, 2, 130, 8}, {1, 2, 70, 8});
    small.how.pattern = pattern;
    for (const Context& context : every_isa()) {
      const Answer got = small.answer(context);
      for (Index row = 0; row < 2 * 130; ++row) {
        if (!pattern.keys_of(row % 130, {130, 70}).empty()) continue;
        const std::string what = to_string(pattern).substr(0, 60) + " row " + std::to_string(row);
        EXPECT_EQ(got.forward.lse.numbers()[row], -infinity) << what;
        EXPECT_EQ(got.forward.rows.max[static_cast<std::size_t>(row)], -infinity) << what;
        for (Index t = 0; t < 8; ++t) {
          ASSERT_EQ(std::bit_cast<std::uint32_t>(got.forward.out.numbers()[row * 8 + t]), 0u)
              << what << " on " << context.isa();
          ASSERT_EQ(got.backward.dq.numbers()[row * 8 + t], 0) << what << " on " << context.isa();
        }
      }
    }
  }
}

TEST(SpecialValues, ARowThatSeesNothingGivesNothingToKeysAndValues) {
  for (const Pattern& pattern : patterns_with_empty_rows()) {
    Small small({1, 1, 130, 8}, {1, 1, 70, 8});
    small.how.pattern = pattern;
    for (const Context& context : every_isa()) {
      Small poisoned({1, 1, 130, 8}, {1, 1, 70, 8});
      poisoned.how.pattern = pattern;
      for (Index row = 0; row < 130; ++row)
        if (pattern.keys_of(row, {130, 70}).empty())
          fill_row(poisoned.q, 0, row, nan), fill_row(poisoned.dout, 0, row, nan);
      EXPECT_SAME_BITS(poisoned.answer(context).backward, small.answer(context).backward)
          << to_string(pattern).substr(0, 60);
    }
  }
}

TEST(SpecialValues, ASinkDoesNotFillARowThatSeesNothing) {
  Small small({1, 1, 8, 4}, {1, 1, 3, 4});
  small.how.pattern = causal();
  small.how.sinks = {1.5f};
  small.how.stats = true;
  EXPECT_WITHIN_BOUND(small, "causal, 8 queries, 3 keys, a sink");
}

TEST(SpecialValues, LeadingMaskedTilesDoNotDisturbLaterKeys) {
  for (const Index first : {1, 63, 64, 65, 128, 190, 199}) {
    Small small({1, 1, 5, 16}, {1, 1, 200, 16});
    const auto may_see = std::make_unique<bool[]>(5 * 200);
    for (Index pair = 0; pair < 5 * 200; ++pair)
      may_see[static_cast<std::size_t>(pair)] = pair % 200 >= first;
    small.how.pattern = mask({may_see.get(), 5 * 200}, 5, 200);
    EXPECT_WITHIN_BOUND(small, "first visible key " + std::to_string(first));
  }
}

TEST(SpecialValues, ADenseBiasOfMinusInfinityHidesItsPair) {
  Small small({1, 2, 70, 8}, {1, 2, 130, 8});
  Tensor bias = random_tensor({1, 1, 70, 130}, 9);
  for (Index pair = 0; pair < 70 * 130; ++pair) {
    const Index query = pair / 130, key = pair % 130;
    const bool hidden = query == 0 || query == 69 || query == 33 || key == 5 || key < query / 2;
    if (hidden) bias.numbers()[pair] = -infinity;
  }
  small.how.bias = dense_bias(bias);
  EXPECT_WITHIN_BOUND(small, "dense -inf");
  const Answer clean = small.answer();
  for (Index head = 0; head < 2; ++head)
    fill_row(small.k, head, 5, nan), fill_row(small.v, head, 5, nan);
  const Answer poisoned = small.answer();
  EXPECT_SAME_BITS(poisoned.forward, clean.forward);
  EXPECT_SAME_BITS(poisoned.backward, clean.backward);
}

TEST(SpecialValues, ABiasOfMinusFltMaxEverywhereIsAUniformRow) {
  Small small({1, 1, 3, 8}, {1, 1, 70, 8});
  Tensor bias({1, 1, 3, 1});
  for (float& number : bias.numbers()) number = -FLT_MAX;
  small.how.bias = dense_bias(bias);
  for (const Context& context : every_isa()) {
    const Attended got = attend(small.q, small.k, small.v, small.how, context);
    for (Index t = 0; t < 8; ++t) {
      double mean = 0;
      for (Index key = 0; key < 70; ++key) mean += at(small.v, 0, 0, key, t) / 70.0;
      for (Index row = 0; row < 3; ++row)
        EXPECT_NEAR(got.out.numbers()[row * 8 + t], mean, 1e-5) << context.isa();
    }
  }
}

TEST(SpecialValues, EmptyAxesAreValidCalls) {
  struct Extents {
    Index batch, heads, kv_heads, queries, keys;
  };
  for (const Extents& e : {Extents{0, 2, 2, 3, 4},
                           {2, 0, 0, 3, 4},
                           {2, 2, 1, 0, 4},
                           {2, 2, 1, 3, 0},
                           {2, 2, 1, 0, 0},
                           {0, 0, 0, 0, 0}})
    for (const Context& context : every_isa()) {
      Small small({e.batch, e.heads, e.queries, 8}, {e.batch, e.kv_heads, e.keys, 8});
      small.how.stats = true;
      const Answer got = small.answer(context);
      EXPECT_EQ(got.forward.out.shape(), (Shape{e.batch, e.heads, e.queries, 8}));
      EXPECT_EQ(got.backward.dk.shape(), (Shape{e.batch, e.kv_heads, e.keys, 8}));
      for (const float number : got.forward.out.numbers()) EXPECT_EQ(number, 0);
      for (const float number : got.forward.lse.numbers()) EXPECT_EQ(number, -infinity);
      for (const float number : got.backward.dq.numbers()) EXPECT_EQ(number, 0);
      for (const float number : got.backward.dk.numbers()) EXPECT_EQ(number, 0);
    }
}

TEST(SpecialValues, OneKeyGivesItsValueBitForBit) {
  for (const Index dim : {1, 3, 16, 64, 65, 200})
    for (const Context& context : every_isa()) {
      Small small({2, 4, 5, dim}, {2, 2, 1, dim});
      const Answer got = small.answer(context);
      for (Index row = 0; row < 2 * 4 * 5; ++row)
        for (Index t = 0; t < dim; ++t)
          ASSERT_EQ(got.forward.out.numbers()[row * dim + t],
                    at(small.v, row / 20, row / 10 % 2, 0, t))
              << "dim " << dim << " on " << context.isa();
      const Problem p = problem(small.q, small.k, small.v);
      EXPECT_WITHIN_BOUND(got.backward, define_gradients(p, doubles(small.dout)), context.isa());
    }
}

TEST(SpecialValues, NanComesOutExactlyWhereItIsDue) {
  using Operand = std::pair<const char*, Tensor Small::*>;
  for (const Pattern& pattern : {causal() & window(40, 0), full(), causal() | prefix(30)})
    for (const auto& [name, operand] : {Operand{"q", &Small::q}, Operand{"k", &Small::k},
                                        Operand{"v", &Small::v}, Operand{"dout", &Small::dout}})
      for (const Index token : {0, 63, 64, 99}) {
        Small small({2, 2, 100, 8}, {2, 2, 100, 8});
        small.how.pattern = pattern;
        at(small.*operand, 1, 0, token, 3) = nan;
        EXPECT_WITHIN_BOUND(small, std::string("NaN in ") + name + " at token " +
                                       std::to_string(token) + ", " + to_string(pattern));
      }
}

TEST(SpecialValues, NanComesOutOfEveryScorePart) {
  const auto poisoned = [](const std::string& part, auto set_part) {
    Small small({1, 2, 20, 8}, {1, 2, 40, 8});
    Tensor table = random_tensor({32, 2}, 1), shaw = random_tensor({9, 8}, 2);
    Tensor dense = random_tensor({1, 2, 20, 40}, 3);
    small.how.bias = alibi(2) + t5_bias(table) + relative_keys(shaw) + dense_bias(dense);
    const Tensor values = random_tensor({9, 8}, 4);
    small.how.relative_values = values;
    small.how.softcap = 10;
    small.how.sinks = {0.5f, 1};
    set_part(small, table, shaw, dense);
    EXPECT_WITHIN_BOUND(small, "NaN in " + part);
  };
  poisoned("slopes", [](Small& s, auto&, auto&, auto&) { s.how.bias.alibi->slopes[1] = nan; });
  poisoned("table", [](Small&, Tensor& table, auto&, auto&) { table.numbers()[2 * 3] = nan; });
  poisoned("relative keys",
           [](Small&, auto&, Tensor& shaw, auto&) { shaw.numbers()[8 * 4 + 1] = nan; });
  poisoned("relative values", [](Small& s, auto&, Tensor& shaw, auto&) {
    shaw.numbers()[8 * 4 + 1] = nan;
    s.how.bias.keys = {};
    s.how.relative_values = shaw;
  });
  poisoned("dense", [](Small&, auto&, auto&, Tensor& dense) { dense.numbers()[40 * 7 + 3] = nan; });
  poisoned("sinks", [](Small& s, auto&, auto&, auto&) { s.how.sinks[0] = nan; });
}

TEST(SpecialValues, WhatNobodySeesHasNoEffectOnAnyBit) {
  for (const float poison : {nan, infinity, -infinity, FLT_MAX})
    for (const auto& [pattern, hidden] :
         std::initializer_list<std::pair<Pattern, std::vector<Index>>>{
             {keys(77), {77, 80, 129}},
             {causal() & window(10, 0), {0, 63, 88}},  // the 31 queries are at 99 ... 129
             {documents({99, 30}), {0, 50, 98, 129}}})
      for (const Index queries : {31, 5})  // in tiles; a few rows over keys in rows
        for (const Context& context : every_isa()) {
          Small small({1, 2, queries, 8}, {1, 1, 130, 8});
          small.how.pattern = pattern;
          const Answer clean = small.answer(context);
          for (const Index key : hidden)
            fill_row(small.k, 0, key, poison), fill_row(small.v, 0, key, poison);
          const Answer got = small.answer(context);
          EXPECT_SAME_BITS(got.forward, clean.forward) << poison << ' ' << to_string(pattern);
          EXPECT_SAME_BITS(got.backward, clean.backward) << poison << ' ' << to_string(pattern);
        }
}

TEST(SpecialValues, WhatTheNextQuerySeesHasNoEffectOnTheOnesBefore) {
  for (const Index queries : {31, 5})
    for (const Context& context : every_isa()) {
      Small small({1, 2, queries, 8}, {1, 1, 130, 8});
      small.how.pattern = causal();
      const Attended clean = small.answer(context).forward;
      fill_row(small.k, 0, 129, nan), fill_row(small.v, 0, 129, infinity);
      Attended got = small.answer(context).forward;
      for (Index head = 0; head < 2; ++head) {
        const auto before = [&](const Attended& attended) {
          return attended.out.numbers().subspan(static_cast<std::size_t>(head * queries * 8),
                                                static_cast<std::size_t>((queries - 1) * 8));
        };
        EXPECT_SILENT(different_bits("out", before(got), before(clean))) << context.isa();
        EXPECT_TRUE(std::isnan(at(got.out, 0, head, queries - 1, 3))) << context.isa();
      }
    }
}

TEST(SpecialValues, NanInARelativeKeyOrValueNobodyUsesHasNoEffectOnAnyBit) {
  for (const Context& context : every_isa()) {
    Small small({1, 2, 90, 8}, {1, 1, 90, 8});
    Tensor table = random_tensor({201, 8}, 5);
    small.how.pattern = causal() & window(40, 0);  // relative positions -40 ... 0
    small.how.bias = relative_keys(table);
    small.how.relative_values = table;
    const Answer clean = small.answer(context);
    for (const Index row : {0, 59, 101, 102, 164, 200})
      for (Index c = 0; c < 8; ++c) table.numbers()[static_cast<std::size_t>(row * 8 + c)] = nan;
    const Answer got = small.answer(context);
    EXPECT_SAME_BITS(got.forward, clean.forward) << context.isa();
    EXPECT_SAME_BITS(got.backward, clean.backward) << context.isa();
  }
}

TEST(SpecialValues, NanInAQueryThatSeesNothingStaysOutOfTheRelativeTables) {
  for (const Context& context : every_isa()) {
    Small small({1, 2, 90, 8}, {1, 1, 70, 8});
    const Tensor table = random_tensor({31, 8}, 5);
    small.how.pattern = causal();  // the first 20 queries stand before the first key
    small.how.bias = relative_keys(table);
    small.how.relative_values = table;
    const Answer clean = small.answer(context);
    fill_row(small.q, 0, 3, nan), fill_row(small.q, 0, 19, nan);
    fill_row(small.dout, 0, 4, nan), fill_row(small.dout, 0, 18, nan);
    const Answer got = small.answer(context);
    EXPECT_SAME_BITS(got.forward, clean.forward) << context.isa();
    EXPECT_SAME_BITS(got.backward, clean.backward) << context.isa();
  }
}

TEST(SpecialValues, InfinityInSightIsWithinTheBound) {
  for (auto operand : {&Small::q, &Small::k, &Small::v})
    for (const float poison : {infinity, -infinity})
      for (const char* pattern : {"full", "causal", "window(3, 2)"}) {
        Small small({1, 2, 40, 8}, {1, 2, 70, 8});
        small.how.pattern = Pattern::parse(pattern);
        at(small.*operand, 0, 1, 37, 2) = poison;
        const Defined want = define(problem(small.q, small.k, small.v, small.how));
        for (const Context& context : every_isa())
          EXPECT_WITHIN_BOUND(attend(small.q, small.k, small.v, small.how, context), want,
                              std::string("infinity under ") + pattern + " on " + context.isa());
      }
}

}  // namespace
}  // namespace rapt::test
