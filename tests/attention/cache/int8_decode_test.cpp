#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

#include "rapt/kv_cache.h"
#include "support/engine.h"
#include "support/special_values.h"
#include "support/truth/bound.h"
#include "support/truth/int8_bound.h"

// A few queries over whole pages of int8, where queries and probabilities become whole numbers.
namespace rapt::test {
namespace {

/// Makes rows such as an int8 cache gives back.
void make_storable(Tensor& tensor) {
  const Index dim = tensor.shape()[3];
  for (Index row = 0; row < tensor.elements() / dim; ++row) {
    float* numbers = tensor.data() + row * dim;
    float largest = 0;
    for (Index c = 0; c < dim; ++c) largest = std::fmax(largest, std::fabs(numbers[c]));
    const float scale = largest / 127, inverse = scale > 0 ? 1 / scale : 0;
    for (Index c = 0; c < dim; ++c) numbers[c] = std::nearbyint(numbers[c] * inverse) * scale;
  }
}

struct Shapes {
  Index heads = 4, kv_heads = 4, queries = 1, tokens = 192, dim = 64, value_dim = 64;
};

/// Operands, and what is done to them before the cache sees them.
struct Int8Problem {
  using Number = std::function<float(Index head, Index token, Index column, float normal)>;

  explicit Int8Problem(const Shapes& s, std::uint64_t seed = 1)
      : shapes(s),
        q(random_tensor({1, s.heads, s.queries, s.dim}, seed)),
        k(random_tensor({1, s.kv_heads, s.tokens, s.dim}, seed + 1)),
        v(random_tensor({1, s.kv_heads, s.tokens, s.value_dim}, seed + 2)) {}

  static void each(Tensor& tensor, const Number& number) {
    const Shape& s = tensor.shape();
    for (Index head = 0; head < s[1]; ++head)
      for (Index token = 0; token < s[2]; ++token)
        for (Index c = 0; c < s[3]; ++c) {
          float& x = at(tensor, 0, head, token, c);
          x = number(head, token, c, x);
        }
  }

  Attended answer(const Context& context) const {
    KvCache cache({.kv_heads = shapes.kv_heads,
                   .dim = shapes.dim,
                   .value_dim = shapes.value_dim,
                   .type = CacheType::int8},
                  context);
    const KvCache::Sequence sequence = cache.add();
    cache.append(sequence, k, v);
    return attend(q, cache, {&sequence, 1}, how);
  }

  void expect_within_bound(const std::string& what) {
    make_storable(k);
    make_storable(v);
    const Problem exact = problem(q, k, v, how);
    const Defined narrow = define(exact);
    Defined wide = narrow;
    allow_int8(exact, wide);
    for (const Context& context : every_isa())
      EXPECT_WITHIN_BOUND(answer(context), multiplies_int8(context) ? wide : narrow,
                          what + " on " + context.isa());
  }

  Shapes shapes;
  Tensor q, k, v;
  Attention how{.pattern = causal()};
};

TEST(Int8Decode, RandomNumbersAreWithinTheBound) {
  std::uint64_t seed = 1;
  for (const Index dim : {1, 5, 16, 64, 80, 128, 144, 512})
    for (const Index group : {1, 2, 3, 4, 7, 16})
      for (const Index value_dim : {1, 24, 64, 160}) {
        Int8Problem problem({group, 1, 1, 200, dim, value_dim}, seed++);
        problem.expect_within_bound("dim " + std::to_string(dim) + ", " + std::to_string(group) +
                                    " rows, values of " + std::to_string(value_dim));
      }
}

TEST(Int8Decode, KeysMayBeLargeWhereTheQueryIsSmall) {
  for (const float small : {1e-2f, 1e-4f, 1e-6f, 1e-7f, 1e-9f}) {
    Int8Problem problem({.dim = 128});
    Int8Problem::each(problem.q,
                      [&](Index, Index, Index c, float x) { return c == 3 ? 1 : x * small; });
    Int8Problem::each(problem.k,
                      [](Index, Index, Index c, float x) { return c == 3 ? 0 : 100 * x; });
    problem.expect_within_bound("small numbers of " + std::to_string(small));
  }
}

TEST(Int8Decode, AQueryMayHaveOneHugeNumber) {
  for (const float huge : {1e2f, 1e5f, 1e10f, 1e30f, 3.4e38f}) {
    Int8Problem problem({.heads = 8, .dim = 80});
    Int8Problem::each(problem.q,
                      [&](Index, Index, Index c, float x) { return c == 11 ? huge : x; });
    Int8Problem::each(problem.k, [](Index, Index, Index c, float x) { return c == 11 ? 0 : x; });
    problem.how.scale = Scale::value(0.1f);
    problem.expect_within_bound("a number of " + std::to_string(huge));
  }
}

TEST(Int8Decode, QueriesMayBeAsSmallAsNumbersGet) {
  for (const float size : {1e-20f, 1e-30f, 1e-33f, 1e-37f, 0.0f}) {
    Int8Problem problem({.heads = 8});
    Int8Problem::each(problem.q, [&](Index, Index, Index, float x) { return x * size; });
    const float other = size >= 1e-30f ? 1 / size : 1e20f;  // logits of ordinary size, or almost 0
    Int8Problem::each(problem.k, [&](Index, Index, Index, float x) { return x * other; });
    problem.expect_within_bound("queries of " + std::to_string(size));
  }
}

/// Logits fall by `fall` from one key to the next; the fewer a probability is, the larger its
/// value.
TEST(Int8Decode, ProbabilitiesMaySpreadOverManyMagnitudes) {
  for (const float fall : {0.01f, 0.2f, 0.5f, 1.0f, 3.0f})
    for (const float growth : {1.0f, 1.2f, 1.6f}) {
      Int8Problem problem({.heads = 8, .kv_heads = 2, .tokens = 256, .dim = 16, .value_dim = 48});
      Int8Problem::each(problem.q,
                        [&](Index, Index, Index c, float) { return c == 0 ? 1.0f : 0.0f; });
      Int8Problem::each(problem.k, [&](Index head, Index token, Index c, float) {
        return c == 0 ? fall * static_cast<float>((token * (head == 0 ? 1 : 37)) % 256) : 0;
      });
      Int8Problem::each(problem.v, [&](Index head, Index token, Index, float x) {
        const auto below = static_cast<float>(255 - (token * (head == 0 ? 1 : 37)) % 256);
        return x * std::pow(growth, std::fmin(below, 100));
      });
      problem.how.scale = Scale::value(1);
      problem.expect_within_bound("a fall of " + std::to_string(fall) + ", values growing by " +
                                  std::to_string(growth));
    }
}

/// All elements of a query but one are just below half a step, and all products have one sign: 0.97
/// of what the bound allows for lse, and half of it for out, where keys of both signs meet.
TEST(Int8Decode, QueriesMayBeRoundedAsBadlyAsTheyCan) {
  for (const bool both : {false, true}) {
    Int8Problem problem({.dim = 128});
    Int8Problem::each(
        problem.q, [](Index, Index, Index c, float) { return c == 5 ? 1.0f : 0.49f * 0x1p-22f; });
    Int8Problem::each(problem.k, [&](Index, Index token, Index c, float) {
      return c == 5 ? 0.0f : both && token % 2 == 0 ? -1e3f : 1e3f;
    });
    Int8Problem::each(problem.v,
                      [](Index, Index token, Index, float) { return token % 2 == 0 ? -1 : 1; });
    problem.how.scale = Scale::value(1 / std::numbers::log2e);
    problem.expect_within_bound("queries below half a step");
  }
}

/// All probabilities of a tile but one are just below half a step: 0.95 of what the bound allows.
TEST(Int8Decode, ProbabilitiesMayBeRoundedAsBadlyAsTheyCan) {
  Int8Problem problem({.tokens = 64, .dim = 4, .value_dim = 20});
  Int8Problem::each(problem.q, [](Index, Index, Index c, float) { return c == 0 ? 1.0f : 0.0f; });
  Int8Problem::each(problem.k, [](Index, Index token, Index c, float) {
    return token == 9 || c > 0 ? 0.0f : static_cast<float>(std::log(0.486 * 0x1p-23));
  });
  Int8Problem::each(problem.v, [](Index, Index token, Index c, float) {
    return token == 9 && c > 0 ? 0.0f : 1.0f;
  });
  problem.how.scale = Scale::value(1);
  problem.expect_within_bound("probabilities below half a step");
}

/// Significands around those at which a larger step has to be taken. A factor that is a power of
/// two leaves them as they are, within a unit.
TEST(Int8Decode, SumsDoNotOverflowWithTheLargestCodes) {
  for (const float sign : {1.0f, -1.0f})
    for (const std::int32_t near : {0x800010, 0xFEFEFF, 0xFF0000, 0xFF7EFF, 0xFF8000, 0xFFFFFA})
      for (std::int32_t significand = near - 3; significand <= near + 3; ++significand) {
        Int8Problem problem(
            {.heads = 4, .kv_heads = 1, .tokens = 128, .dim = 512, .value_dim = 32});
        Int8Problem::each(problem.q, [&](Index, Index, Index, float) {
          return sign * static_cast<float>(significand) * 0x1p-35f;
        });
        Int8Problem::each(problem.k, [](Index, Index token, Index, float) {
          return token % 3 == 0 ? 1.0f : -1.0f;
        });
        Int8Problem::each(problem.v, [](Index, Index token, Index, float) {
          return token < 64 ? 0x1.FFFFFEp0f : -0x1.FFFFFEp0f;
        });
        problem.how.scale = Scale::value(0x1p-3 / std::numbers::log2e);
        problem.expect_within_bound("significands of " + std::to_string(significand));
      }
}

/// Every query row has a largest number of its own: all significands get their turn.
TEST(Int8Decode, ManyQueriesAreWithinTheBound) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed)
    Int8Problem({.heads = 64, .kv_heads = 16, .tokens = 128, .dim = 8, .value_dim = 16}, seed)
        .expect_within_bound("seed " + std::to_string(seed));
}

TEST(Int8Decode, LargeKeysWhereAQueryIsZeroGiveNoNan) {
  Int8Problem problem({.heads = 2, .kv_heads = 2, .dim = 16});
  Int8Problem::each(problem.q, [](Index, Index, Index c, float) { return c == 0 ? 1e20f : 0.0f; });
  Int8Problem::each(problem.k,
                    [](Index, Index, Index c, float x) { return c == 0 ? 0.0f : x * 1e30f; });
  problem.expect_within_bound("a query of 1e20 and keys of 1e30");
}

TEST(Int8Decode, MasksScoresAndNewTokensAreWithinTheBound) {
  std::uint64_t seed = 100;
  for (const char* pattern :
       {"causal", "causal & window(100, 0)", "causal & (window(70, 0) | tokens({0, 5}))"})
    for (const Index queries : {1, 2, 4}) {
      Int8Problem problem({.heads = 4, .kv_heads = 2, .queries = queries, .tokens = 330}, seed++);
      problem.how.pattern = Pattern::parse(pattern);
      problem.expect_within_bound(pattern);
      problem.how.sinks = {0.5f, -1, 0, 2};
      problem.expect_within_bound(std::string(pattern) + " with sinks");
      problem.how.bias = alibi(4);
      problem.expect_within_bound(std::string(pattern) + " with slopes");
    }
}

TEST(Int8Decode, WhatIsNoNumberComesOutWhereItIsDue) {
  for (const Context& context : every_isa())
    for (const float special : {nan, infinity, -infinity}) {
      const auto finite_rows = [&](const Int8Problem& problem) {
        const Attended got = problem.answer(context);
        std::vector<bool> finite;
        for (Index head = 0; head < 4; ++head) {
          const View row = slice(got.out, 0, head);
          const Doubles numbers = doubles(row);
          const auto count = std::count_if(numbers.begin(), numbers.end(),
                                           [](double x) { return !std::isnan(x); });
          EXPECT_TRUE(count == 0 || count == 64) << head << " on " << context.isa();
          finite.push_back(count > 0);
        }
        return finite;
      };
      Int8Problem query{Shapes{}};
      at(query.q, 0, 2, 0, 7) = special;
      EXPECT_EQ(finite_rows(query), (std::vector{true, true, false, true}));
      Int8Problem key{Shapes{}};
      at(key.k, 0, 1, 70, 7) = special;
      EXPECT_EQ(finite_rows(key), (std::vector{true, false, true, true}));
      Int8Problem value{Shapes{}};
      at(value.v, 0, 3, 70, 7) = special;
      EXPECT_EQ(finite_rows(value), (std::vector{true, true, true, false}));
      value.how.pattern = window(100, 0);  // the page is seen in part
      EXPECT_EQ(finite_rows(value), (std::vector{true, true, true, true}));
    }
}

TEST(Int8Decode, ARowHasTheSameBitsOnAnyThreadsAndInAnyCompany) {
  const Int8Problem problem({.heads = 8, .kv_heads = 2, .tokens = 5000});
  const std::string isa = every_isa().front().isa();
  const Attended want = problem.answer(Context(1, isa));
  for (const Index threads : {2, 3, 7})
    EXPECT_SAME_BITS(problem.answer(Context(threads, isa)), want) << threads;
  const Context context(2, isa);
  KvCache cache({.kv_heads = 2, .dim = 64, .type = CacheType::int8}, context);
  const Tensor others = random_tensor({1, 2, 900, 64}, 9);
  Tensor q = random_tensor({3, 8, 1, 64}, 10);
  std::copy_n(problem.q.data(), 8 * 64, q.data() + 8 * 64);
  std::vector<KvCache::Sequence> sequences;
  for (Index i = 0; i < 3; ++i) {
    sequences.push_back(cache.add());
    cache.append(sequences.back(), i == 1 ? problem.k : others, i == 1 ? problem.v : others);
  }
  const Attended got = attend(q, cache, sequences, problem.how);
  EXPECT_SILENT(
      different_bits("out", got.out.numbers().subspan(8 * 64, 8 * 64), want.out.numbers()));
}

}  // namespace
}  // namespace rapt::test
