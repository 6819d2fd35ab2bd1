#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>

#include "rapt/kv_cache.h"
#include "support/cache_cases.h"
#include "support/engine.h"
#include "support/refused.h"
#include "support/special_values.h"
#include "support/truth/bound.h"
#include "support/truth/int8_bound.h"

namespace rapt::test {
namespace {

/// What a cache of this type gives back.
Tensor stored(const Tensor& tensor, CacheType type) {
  if (type == CacheType::f32) return tensor.clone();
  if (type == CacheType::bf16) return tensor.converted(Type::bf16).converted(Type::f32);
  Tensor out = tensor.clone();
  const Index dim = tensor.shape()[3];
  for (Index row = 0; row < tensor.elements() / dim; ++row) {
    float* numbers = out.data() + row * dim;
    float largest = 0;
    for (Index c = 0; c < dim; ++c) largest = std::fmax(largest, std::fabs(numbers[c]));
    const float scale = largest / 127;
    for (Index c = 0; c < dim; ++c) {
      const float before = numbers[c];
      numbers[c] = std::nearbyint(before * (scale > 0 ? 1 / scale : 0)) * scale;
      EXPECT_LE(std::fabs(numbers[c] - before), 0.501f * scale);
    }
  }
  return out;
}

struct Fixture {
  Fixture(CacheType type, const Context& context, Index items = 1)
      : small({items, 4, 300, 20}, {items, 2, 300, 20}),
        cache({.kv_heads = 2, .dim = 20, .type = type}, context),
        k(stored(small.k, type)),
        v(stored(small.v, type)) {}
  Small small;
  KvCache cache;
  Tensor k, v;
};

void expect_same_rows(const Attended& part, const Attended& whole, Index item, Index first,
                      Index count, const std::string& where) {
  const Index all = whole.lse.shape()[2], dim = whole.out.shape()[3];
  for (Index head = 0; head < 4; ++head) {
    const auto rows = [&](const Tensor& t, Index at, Index queries, Index from, Index width) {
      return t.numbers().subspan(
          static_cast<std::size_t>(((at * 4 + head) * queries + from) * width),
          static_cast<std::size_t>(count * width));
    };
    EXPECT_EQ(different_bits("out", rows(part.out, 0, count, 0, dim),
                             rows(whole.out, item, all, first, dim)),
              "")
        << where << ", " << count << " from " << first;
    EXPECT_EQ(
        different_bits("lse", rows(part.lse, 0, count, 0, 1), rows(whole.lse, item, all, first, 1)),
        "")
        << where;
  }
}

TEST(Cache, ChunksAndSingleTokensHaveTheBitsOfAWholePrompt) {
  for (const CacheType type : cache_types)
    for (const char* pattern : {"causal", "causal & window(70, 0)",
                                // the second of these tokens comes with a later chunk
                                "causal & (window(30, 0) | tokens({0, 150}))"})
      for (const Context& context : every_isa()) {
        Fixture f(type, context);
        const Attention how{
            .pattern = Pattern::parse(pattern), .softcap = 20, .bias = alibi(4), .strict = true};
        const Attended whole = attend(f.small.q, f.k, f.v, how, context);
        const KvCache::Sequence sequence = f.cache.add();
        Index first = 0;
        for (const Index count : {1, 1, 61, 1, 1, 70, 128, 1, 36}) {
          f.cache.append(sequence, tokens_of(f.small.k, 0, first, count),
                         tokens_of(f.small.v, 0, first, count));
          const Attended part =
              attend(tokens_of(f.small.q, 0, first, count), f.cache, std::span(&sequence, 1), how);
          expect_same_rows(part, whole, 0, first, count,
                           to_string(type) + " " + pattern + " on " + context.isa());
          first += count;
        }
        EXPECT_EQ(f.cache.tokens(sequence), 300);
      }
}

TEST(Cache, SequencesOfOneBatchHaveLengthsOfTheirOwn) {
  for (const CacheType type : cache_types)
    for (const Context& context : every_isa()) {
      Fixture f(type, context, 3);
      const Index lengths[] = {300, 1, 129};
      std::vector<KvCache::Sequence> sequences;
      Tensor q({3, 4, 1, 20});
      for (Index item = 0; item < 3; ++item) {
        sequences.push_back(f.cache.add());
        f.cache.append(sequences.back(), tokens_of(f.small.k, item, 0, lengths[item]),
                       tokens_of(f.small.v, item, 0, lengths[item]));
        for (Index head = 0; head < 4; ++head)
          std::copy_n(f.small.q.view().row(item, head, lengths[item] - 1), 20,
                      q.data() + (item * 4 + head) * 20);
      }
      const Attention how{.pattern = causal(), .stats = true, .strict = true};
      const Attended got = attend(q, f.cache, sequences, how);
      for (Index item = 0; item < 3; ++item) {
        const Attended want = attend(tokens_of(f.small.q, item, lengths[item] - 1, 1),
                                     tokens_of(f.k, item, 0, lengths[item]),
                                     tokens_of(f.v, item, 0, lengths[item]), how, context);
        expect_same_rows(want, got, item, 0, 1, to_string(type));
        EXPECT_SILENT(different_bits(
            "entropy", got.stats->entropy.numbers().subspan(static_cast<std::size_t>(item * 4), 4),
            want.stats->entropy.numbers()));
      }
    }
}

/// Attention of the newest token over a sequence must be that over these tokens of k and v.
void expect_tokens(Fixture& f, KvCache::Sequence sequence, const std::vector<Index>& origin) {
  const auto count = static_cast<Index>(origin.size());
  Tensor k({1, 2, count, 20}), v({1, 2, count, 20});
  for (Index head = 0; head < 2; ++head)
    for (Index i = 0; i < count; ++i) {
      std::copy_n(f.k.view().row(0, head, origin[static_cast<std::size_t>(i)]), 20,
                  k.data() + (head * count + i) * 20);
      std::copy_n(f.v.view().row(0, head, origin[static_cast<std::size_t>(i)]), 20,
                  v.data() + (head * count + i) * 20);
    }
  const Context& context = f.cache.context();
  const AnyView q = tokens_of(f.small.q, 0, 0, 1);
  ASSERT_EQ(f.cache.tokens(sequence), count);
  EXPECT_SAME_BITS(attend(q, f.cache, std::span(&sequence, 1), {.strict = true}),
                   attend(q, k, v, {.strict = true}, context));
}

std::vector<Index> counted(Index first, Index end) {
  std::vector<Index> numbers(static_cast<std::size_t>(end - first));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

std::vector<Index> joined(std::vector<Index> a, const std::vector<Index>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(Cache, AForkSharesPagesAndGrowsSeparately) {
  for (const CacheType type : cache_types) {
    Fixture f(type, every_isa().front());
    const auto append = [&](KvCache::Sequence sequence, Index first, Index count) {
      f.cache.append(sequence, tokens_of(f.small.k, 0, first, count),
                     tokens_of(f.small.v, 0, first, count));
    };
    const auto origin = f.cache.add();
    append(origin, 0, 150);
    EXPECT_EQ(f.cache.pages(), 3);
    const auto fork = f.cache.fork(origin);
    EXPECT_EQ(f.cache.pages(), 3);
    append(fork, 200, 10);
    EXPECT_EQ(f.cache.pages(), 4);  // the last page was copied
    append(origin, 250, 50);
    expect_tokens(f, origin, joined(counted(0, 150), counted(250, 300)));
    expect_tokens(f, fork, joined(counted(0, 150), counted(200, 210)));
    f.cache.truncate(fork, 100);
    append(fork, 290, 5);
    expect_tokens(f, fork, joined(counted(0, 100), counted(290, 295)));
    expect_tokens(f, origin, joined(counted(0, 150), counted(250, 300)));
    f.cache.remove(origin);
    expect_tokens(f, fork, joined(counted(0, 100), counted(290, 295)));
    EXPECT_EQ(f.cache.pages(), 2);
    f.cache.remove(fork);
    EXPECT_EQ(f.cache.pages(), 0);
    EXPECT_THROW(f.cache.tokens(fork), std::invalid_argument);
  }
}

TEST(Cache, AWindowGivesUpPagesAndKeepsThePinnedOnes) {
  const Context& context = every_isa().front();
  Small small({1, 1, 2000, 8}, {1, 1, 2000, 8});
  KvCache cache({.kv_heads = 1, .dim = 8, .window = 100, .pinned = 4}, context);
  const auto sequence = cache.add();
  small.how.pattern = causal() & (window(99, 0) | tokens({0, 1, 2, 3}));
  small.how.strict = true;
  const Attended whole = attend(small.q, small.k, small.v, small.how, context);
  for (Index first = 0, count = 4; first < 2000; first += count) {
    count = first == 0 ? 4 : std::min<Index>(first == 504 ? 300 : 7, 2000 - first);
    cache.append(sequence, tokens_of(small.k, 0, first, count),
                 tokens_of(small.v, 0, first, count));
    const Attended part =
        attend(tokens_of(small.q, 0, first, count), cache, std::span(&sequence, 1), small.how);
    for (Index i = 0; i < count * 8; ++i)
      ASSERT_EQ(part.out.numbers()[static_cast<std::size_t>(i)],
                whole.out.numbers()[static_cast<std::size_t>(first * 8 + i)])
          << first;
    EXPECT_LE(cache.pages(), 1 + (100 + count) / 64 + 2);
  }
  const AnyView q = tokens_of(small.q, 0, 0, 1);
  EXPECT_THROW(attend(q, cache, std::span(&sequence, 1), {.pattern = causal()}),
               std::invalid_argument);
  EXPECT_THROW(cache.truncate(sequence, 1000), std::invalid_argument);
  cache.truncate(sequence, 1990);
  EXPECT_EQ(cache.tokens(sequence), 1990);
}

TEST(Cache, AFewQueriesAreWithinTheBound) {
  std::uint64_t seed = 1;
  for (const CacheType type : cache_types)
    for (const Index queries : {1, 3, 4})
      for (const Index kv_heads : {1, 4})
        for (const Index tokens : {1, 64, 65, 1300})
          for (const char* pattern : {"causal", "causal & (window(300, 0) | tokens({0}))"})
            for (const Context& context : every_isa()) {
              if (tokens < queries) continue;
              // More sizes than instruction sets, so that each meets all.
              const Index dim = std::array<Index, 7>{24, 64, 5, 80, 112, 128, 144}[seed % 7];
              Small small({2, 4, queries, dim}, {2, kv_heads, tokens, dim}, seed++);
              KvCache cache({.kv_heads = kv_heads, .dim = dim, .type = type}, context);
              std::vector<KvCache::Sequence> sequences;
              for (Index item = 0; item < 2; ++item) {
                sequences.push_back(cache.add());
                cache.append(sequences.back(), tokens_of(small.k, item, 0, tokens),
                             tokens_of(small.v, item, 0, tokens));
              }
              small.how.pattern = Pattern::parse(pattern);
              if (seed % 2 == 0) small.how.softcap = 10;
              if (seed % 3 == 0) small.how.bias = alibi(4);
              if (seed % 5 == 0) small.how.sinks = {0.5f, -1, 0, 2};
              const Tensor values = random_tensor({15, dim}, seed);
              if (seed % 11 == 0) small.how.relative_values = values;
              const Tensor k = stored(small.k, type), v = stored(small.v, type);
              const Problem exact = problem(small.q, k, v, small.how);
              Defined want = define(exact);
              if (type == CacheType::int8 && multiplies_int8(context)) allow_int8(exact, want);
              EXPECT_WITHIN_BOUND(attend(small.q, cache, sequences, small.how), want,
                                  to_string(type) + ", " + std::to_string(tokens) + " tokens, " +
                                      pattern + " on " + context.isa() + ", seed " +
                                      std::to_string(seed));
            }
}

TEST(Cache, DecodingHasTheSameBitsForAnyNumberOfThreads) {
  const Small small({1, 4, 1, 64}, {1, 2, 5000, 64});
  const std::string isa = every_isa().front().isa();
  Attended want;
  for (const Index threads : {1, 2, 3, 7}) {
    const Context context(threads, isa);
    KvCache cache({.kv_heads = 2, .dim = 64}, context);
    const auto sequence = cache.add();
    cache.append(sequence, small.k, small.v);
    Attended got = attend(small.q, cache, std::span(&sequence, 1), {});
    if (threads > 1) {
      EXPECT_SAME_BITS(got, want) << threads;
    }
    want = std::move(got);
  }
}

TEST(Cache, NanInSightComesOutAndBehindTheMaskDoesNot) {
  for (const CacheType type : cache_types)
    for (const Context& context : every_isa()) {
      Fixture f(type, context);
      at(f.small.v, 0, 0, 10, 3) = nan;
      const auto sequence = f.cache.add();
      f.cache.append(sequence, f.small.k, f.small.v);
      const auto ask = [&](const Pattern& pattern) {
        return attend(tokens_of(f.small.q, 0, 0, 1), f.cache, std::span(&sequence, 1),
                      {.pattern = pattern});
      };
      EXPECT_TRUE(std::isnan(ask(full()).out.numbers()[3])) << to_string(type);
      const Attended hidden = ask(window(280, 0));
      for (const float number : hidden.out.numbers()) EXPECT_FALSE(std::isnan(number));
    }
}

TEST(Cache, WhatDoesNotFitIsRefused) {
  const Context& context = every_isa().front();
  const auto refused = [](const auto& call, const std::string& word) {
    try {
      call();
      ADD_FAILURE() << "accepted; expected a refusal naming " << word;
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  };
  refused([] { KvCache({.kv_heads = 0}); }, "kv_heads");
  refused([] { KvCache({.dim = 513}); }, "513");
  refused([] { KvCache({.window = -1}); }, "window");
  refused([] { KvCache({.pinned = 3}); }, "pinned");
  KvCache cache({.kv_heads = 2, .dim = 8}, context);
  const auto sequence = cache.add();
  const Tensor good({1, 2, 3, 8}), heads({1, 3, 3, 8}), batch({2, 2, 3, 8}), flat({2, 8});
  refused([&] { cache.append(sequence, heads, good); }, "k has shape [1, 3, 3, 8]");
  refused([&] { cache.append(sequence, good, heads); }, "v has shape");
  refused([&] { cache.append(sequence, batch, batch); }, "[2, 2, 3, 8]");
  refused([&] { cache.append(sequence, flat, flat); }, "[2, 8]");
  refused([&] { cache.append(7, good, good); }, "sequence 7");
  refused([&] { cache.truncate(sequence, 1); }, "truncate");
  EXPECT_EQ(cache.tokens(sequence), 0);
  cache.append(sequence, good, good);
  const Tensor q({1, 4, 1, 8}), wide({1, 4, 1, 16}), two({2, 4, 1, 8});
  refused([&] { attend(wide, cache, std::span(&sequence, 1), {}); }, "16");
  refused([&] { attend(two, cache, std::span(&sequence, 1), {}); }, "1 sequences");
}

TEST(Cache, QueriesWhoseKeysWereNotAppendedAreRefused) {
  for (const Context& context : every_isa()) {
    KvCache cache({.kv_heads = 2, .dim = 8}, context);
    const std::array both = {cache.add(), cache.add()};
    const Tensor q = random_tensor({2, 4, 3, 8}, 1), k = random_tensor({1, 2, 3, 8}, 2);
    cache.append(both[0], k, k);
    const auto said = [&](const Attention& how) -> std::string {
      try {
        attend(q, cache, both, how);
      } catch (const std::invalid_argument& error) {
        return error.what();
      }
      return "";
    };
    const auto refused = [&](const Pattern& pattern, const std::string& words) {
      EXPECT_NE(said({.pattern = pattern}).find(words), std::string::npos)
          << said({.pattern = pattern});
    };
    refused(causal(), "q has 3 tokens and sequence 1 has 0");
    refused(causal() & window(1, 0), "appended before");
    // Nothing there, or nothing to be seen wherever a query stands: zeros, as without a cache.
    for (const char* pattern : {"full", "keys(0)"})
      EXPECT_EQ(said({.pattern = Pattern::parse(pattern)}), "") << pattern;
    refused(Pattern::parse("mask(2, {})"), "mask: made for 0 queries and 2 keys");
    cache.append(both[1], tokens_of(k, 0, 0, 2), tokens_of(k, 0, 0, 2));
    refused(causal(), "q has 3 tokens and sequence 1 has 2");
    EXPECT_EQ(said({}), "");  // as a decoder that looks at its encoder
    EXPECT_EQ(said({.pattern = causal() | tokens(std::vector<Index>{0})}), "");
    for (const char* pattern : {"prefix(1)", "documents({1})", "documents({1}) & causal"})
      refused(Pattern::parse(pattern), "stands before all keys");
    cache.append(both[1], tokens_of(k, 0, 2, 1), tokens_of(k, 0, 2, 1));
    EXPECT_EQ(said({.pattern = causal()}), "");
  }
}

TEST(Cache, NoSequencesAndNoQueriesGiveNothing) {
  for (const Context& context : every_isa()) {
    KvCache cache({.kv_heads = 2, .dim = 12}, context);
    EXPECT_EQ(attend(Tensor({0, 2, 1, 12}), cache, {}, {}).out.elements(), 0);
    const KvCache::Sequence sequence = cache.add();
    const Tensor k = random_tensor({1, 2, 5, 12}, 1);
    cache.append(sequence, k, k);
    EXPECT_EQ(attend(Tensor({1, 4, 0, 12}), cache, {&sequence, 1}, {}).out.elements(), 0);
  }
}

TEST(Cache, ExplainNamesTheRoute) {
  const CacheOptions options{.kv_heads = 2, .dim = 64, .type = CacheType::bf16};
  const auto route = [&](Index queries, const Attention& how) {
    return explain({1, 8, queries, 64}, options, 5000, how);
  };
  EXPECT_NE(route(1, {}).find("route     decode"), std::string::npos);
  EXPECT_NE(route(1, {.strict = true}).find("decode: strict is set"), std::string::npos);
  EXPECT_NE(route(5, {}).find("more than 16 query rows"), std::string::npos);
  EXPECT_NE(route(1, {.dropout = {.rate = 0.1}}).find("decode: dropout"), std::string::npos);
  EXPECT_NE(route(1, {.pattern = window(7, 0)}).find("f32 over 8 keys"), std::string::npos);
  EXPECT_NE(route(1, {.pattern = window(7, 0), .softcap = 5}).find("route     decode"),
            std::string::npos);
  for (const Context& context : every_isa())
    EXPECT_EQ(explain({1, 8, 1, 64}, {.kv_heads = 2, .type = CacheType::int8}, 5000, {}, Type::f32,
                      context)
                      .find("full pages multiplied as int8") != std::string::npos,
              multiplies_int8(context));
  EXPECT_NE(explain({1, 8, 1, 64}, {1, 2, 64, 64}, {1, 2, 64, 64}).find("f32 over 64 keys"),
            std::string::npos);
  expect_refused(
      [&] {
        explain({1, 8, 9, 64}, options, 5, {.pattern = causal()});
      },
      {"attend over a cache: q has 9 tokens and a sequence has 5"});
}

}  // namespace
}  // namespace rapt::test
