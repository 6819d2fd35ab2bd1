#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "rapt/kv_cache.h"
#include "support/cache_cases.h"
#include "support/engine.h"
#include "support/refused.h"
#include "support/special_values.h"
#include "support/truth/bound.h"

namespace rapt::test {
namespace {

/// Numbers that a cache of any type keeps as they are: an int8 row has the scale 1.
Tensor whole_numbers(const Shape& shape, std::uint64_t seed) {
  Tensor tensor = random_tensor(shape, seed);
  for (float& x : tensor.numbers()) x = std::fmax(-126.0f, std::fmin(126.0f, std::round(x * 8)));
  const Index dim = shape[3];
  for (Index row = 0; row < tensor.elements() / dim; ++row) tensor.data()[row * dim] = 127;
  return tensor;
}

struct Grown {
  Grown(const CacheOptions& options, const Context& context, const Tensor& k, const Tensor& v,
        Index item = 0)
      : cache(options, context), sequence(cache.add()) {
    cache.append(sequence, tokens_of(k, item, 0, k.shape()[2]),
                 tokens_of(v, item, 0, v.shape()[2]));
  }
  std::span<const KvCache::Sequence> one() const { return {&sequence, 1}; }
  KvCache cache;
  KvCache::Sequence sequence;
};

TEST(ShortContext, FewKeysOfACacheAreWithinTheBound) {
  std::uint64_t seed = 1;
  for (const CacheType type : cache_types)
    for (const Index kv_heads : {1, 3, 18})
      for (const Index tokens : {1, 2, 3, 7, 17, 40, 63, 64, 67, 130})
        for (const Context& context : every_isa()) {
          const Index dim = std::array<Index, 6>{24, 64, 5, 80, 128, 1}[++seed % 6];
          const Index value_dim = std::array<Index, 5>{64, 24, 7, 160, 1}[seed % 5];
          Tensor q = random_tensor({1, 18, 1, dim}, seed);
          for (float& x : q.numbers()) x /= 32;
          const Tensor k = whole_numbers({1, kv_heads, tokens, dim}, seed + 1);
          const Tensor v = whole_numbers({1, kv_heads, tokens, value_dim}, seed + 2);
          const Grown grown(
              {.kv_heads = kv_heads, .dim = dim, .value_dim = value_dim, .type = type}, context, k,
              v);
          for (const char* pattern : {"causal", "window(5, 0)", "causal & keys(66)"})
            for (const Scale scale : {Scale{}, Scale::log_n()}) {
              const Attention how{.pattern = Pattern::parse(pattern), .scale = scale};
              const std::string where = to_string(type) + ", " + std::to_string(tokens) +
                                        " tokens, " + pattern + " on " + context.isa() + ", seed " +
                                        std::to_string(seed);
              const Attended got = attend(q, grown.cache, grown.one(), how);
              EXPECT_WITHIN_BOUND(got, define(problem(q, k, v, how)), where);
              Tensor out({1, 18, 1, value_dim});
              attend_into(out, q, grown.cache, grown.one(), how);
              EXPECT_SILENT(different_bits("out", out.numbers(), got.out.numbers())) << where;
            }
        }
}

TEST(ShortContext, KeysOfTheCallerMayHaveAnyStridesAndType) {
  for (const Context& context : every_isa()) {
    // [batch, tokens, heads, dim] in memory.
    const Tensor q = random_tensor({2, 1, 6, 40}, 1).converted(Type::bf16).converted(Type::f32);
    const Tensor k = random_tensor({2, 30, 3, 40}, 2).converted(Type::bf16).converted(Type::f32);
    const Tensor v = random_tensor({2, 30, 3, 24}, 3).converted(Type::bf16).converted(Type::f32);
    const View vq = q.view().swapped(1, 2), vk = k.view().swapped(1, 2),
               vv = v.view().swapped(1, 2);
    const Attention how{.pattern = window(20, 0)};
    const Attended got = attend(vq, vk, vv, how, context);
    EXPECT_WITHIN_BOUND(got, define(problem(vq, vk, vv, how)), context.isa());
    const Tensor k16 = k.converted(Type::bf16), v16 = v.converted(Type::bf16);
    const auto swapped = [](const Tensor& t) {
      const Shape& s = t.shape();
      return AnyView::unchecked(t.memory(), t.type(), {s[0], s[2], s[1], s[3]},
                                {s[1] * s[2] * s[3], s[3], s[2] * s[3], 1});
    };
    EXPECT_SAME_BITS(attend(vq, swapped(k16), swapped(v16), how, context), got);
    Tensor out({2, 6, 1, 24});
    attend_into(out, vq, vk, vv, how, context);
    EXPECT_SILENT(different_bits("out", out.numbers(), got.out.numbers()));
    const Attended rounded = attend(swapped(q.converted(Type::bf16)), vk, vv, how, context);
    EXPECT_EQ(rounded.out.type(), Type::bf16);
    const Tensor want = got.out.converted(Type::bf16).converted(Type::f32);
    EXPECT_SILENT(
        different_bits("bf16", rounded.out.converted(Type::f32).numbers(), want.numbers()));
  }
}

TEST(ShortContext, SpecialNumbersComeOutOnlyWhereTheyAreSeen) {
  for (const CacheType type : cache_types)
    for (const Context& context : every_isa()) {
      const Tensor q = random_tensor({1, 2, 1, 20}, 1);
      Tensor k = random_tensor({1, 2, 30, 20}, 2), v = random_tensor({1, 2, 30, 20}, 3);
      at(v, 0, 0, 10, 3) = nan;
      at(k, 0, 1, 12, 0) = nan;
      const Grown grown({.kv_heads = 2, .dim = 20, .type = type}, context, k, v);
      const Attended seen = attend(q, grown.cache, grown.one(), {});
      EXPECT_TRUE(std::isnan(seen.out.numbers()[3])) << to_string(type);
      for (const float x : seen.out.numbers().subspan(20))
        EXPECT_TRUE(std::isnan(x)) << to_string(type);
      const Attended hidden = attend(q, grown.cache, grown.one(), {.pattern = window(16, 0)});
      for (const float x : hidden.out.numbers()) EXPECT_FALSE(std::isnan(x)) << to_string(type);
    }
}

TEST(ShortContext, InfiniteNumbersAreThoseOfTheDefinition) {
  for (const Context& context : every_isa()) {
    Small small({1, 3, 1, 16}, {1, 3, 9, 16});
    at(small.v, 0, 0, 2, 5) = infinity;
    for (Index j = 0; j < 9; ++j) {  // every logit of a head is -inf: 0 / 0
      std::fill_n(&at(small.k, 0, 1, j, 0), 16, 0.0f);
      at(small.k, 0, 1, j, 0) = -infinity;
    }
    at(small.q, 0, 1, 0, 0) = 1;
    at(small.k, 0, 2, 4, 1) = -infinity;
    at(small.q, 0, 2, 0, 1) = 1;
    EXPECT_WITHIN_BOUND(attend(small.q, small.k, small.v, {}, context),
                        define(problem(small.q, small.k, small.v, {})), context.isa());
    const Grown grown({.kv_heads = 3, .dim = 16}, context, small.k, small.v);
    EXPECT_WITHIN_BOUND(attend(small.q, grown.cache, grown.one(), {}),
                        define(problem(small.q, small.k, small.v, {})), context.isa());
  }
}

TEST(ShortContext, AQueryHasTheSameBitsInAnyCompanyAndOnAnyThreads) {
  const Index lengths[] = {40, 64, 1, 63, 200, 12};
  const Small small({6, 8, 1, 64}, {6, 4, 200, 64});
  const std::string isa = every_isa().front().isa();
  for (const CacheType type : cache_types) {
    Attended want;
    for (const Index threads : {1, 2, 7}) {
      const Context context(threads, isa);
      KvCache cache({.kv_heads = 4, .dim = 64, .type = type}, context);
      std::vector<KvCache::Sequence> sequences;
      for (Index item = 0; item < 6; ++item) {
        sequences.push_back(cache.add());
        cache.append(sequences.back(), tokens_of(small.k, item, 0, lengths[item]),
                     tokens_of(small.v, item, 0, lengths[item]));
      }
      Attended got = attend(small.q, cache, sequences, {});
      for (std::size_t item = 0; item < 6; ++item) {
        const Attended alone = attend(tokens_of(small.q, static_cast<Index>(item), 0, 1), cache,
                                      std::span(&sequences[item], 1), {});
        EXPECT_SILENT(different_bits("out", alone.out.numbers(),
                                     got.out.numbers().subspan(item * 8 * 64, 8 * 64)))
            << to_string(type) << " " << item;
        EXPECT_SILENT(
            different_bits("lse", alone.lse.numbers(), got.lse.numbers().subspan(item * 8, 8)));
      }
      if (threads > 1) {
        EXPECT_SAME_BITS(got, want) << to_string(type) << " " << threads;
      }
      want = std::move(got);
    }
  }
}

/// Partial and full pages give the same bits, however the sequence got its tokens.
TEST(ShortContext, PagesFillUpAndAreCutAndGoOn) {
  for (const CacheType type : cache_types)
    for (const Context& context : every_isa()) {
      const Tensor q = random_tensor({1, 4, 1, 48}, 1);
      const Tensor k = random_tensor({1, 2, 200, 48}, 2), v = random_tensor({1, 2, 200, 48}, 3);
      KvCache cache({.kv_heads = 2, .dim = 48, .type = type}, context);
      const auto whole = cache.add(), pieces = cache.add(), cut = cache.add();
      const auto append = [&](KvCache::Sequence sequence, Index first, Index count) {
        cache.append(sequence, tokens_of(k, 0, first, count), tokens_of(v, 0, first, count));
      };
      append(whole, 0, 150);
      for (Index i = 0; i < 150; ++i) append(pieces, i, 1);
      append(cut, 0, 200);
      cache.truncate(cut, 90);  // into a page that was full
      append(cut, 90, 60);
      const auto fork = cache.fork(pieces);
      append(fork, 150, 3);  // a page in rows is copied
      cache.truncate(fork, 150);
      for (const bool strict : {false, true}) {
        const auto ask = [&](KvCache::Sequence sequence) {
          return attend(q, cache, {&sequence, 1}, {.strict = strict});
        };
        const Attended want = ask(whole);
        EXPECT_SAME_BITS(ask(pieces), want) << to_string(type) << " on " << context.isa();
        EXPECT_SAME_BITS(ask(fork), want) << to_string(type) << " on " << context.isa();
        if (strict) {
          EXPECT_SAME_BITS(ask(cut), want) << to_string(type) << " on " << context.isa();
        }
      }
    }
}

/// Truncated tokens leave no trace in the bits, also where a fork continues.
TEST(ShortContext, TokensThatWereTakenBackLeaveNoTrace) {
  for (const CacheType type : cache_types)
    for (const Index kept : {1, 62, 64 + 63, 640 + 5})
      for (const Context& context : every_isa()) {
        const CacheOptions options{.kv_heads = 2, .dim = 40, .value_dim = 24, .type = type};
        const Index all = kept + 70;
        const Tensor k = random_tensor({1, 2, all, 40}, 1), v = random_tensor({1, 2, all, 24}, 2);
        const Tensor q = random_tensor({1, 4, 1, 40}, 3);
        Grown grown(options, context, k, v);
        const KvCache::Sequence whole = grown.cache.fork(grown.sequence);
        const Attended before = attend(q, grown.cache, {&whole, 1}, {});
        grown.cache.truncate(grown.sequence, kept);
        KvCache plain(options, context);
        const KvCache::Sequence short_one = plain.add();
        plain.append(short_one, tokens_of(k, 0, 0, kept), tokens_of(v, 0, 0, kept));
        const auto compare = [&] {
          const Attended got = attend(q, grown.cache, grown.one(), {});
          const Attended want = attend(q, plain, {&short_one, 1}, {});
          EXPECT_SILENT(different_bits("out", got.out.numbers(), want.out.numbers()))
              << to_string(type) << ' ' << kept << " on " << context.isa();
        };
        compare();
        grown.cache.append(grown.sequence, tokens_of(k, 0, 0, 3), tokens_of(v, 0, 0, 3));
        plain.append(short_one, tokens_of(k, 0, 0, 3), tokens_of(v, 0, 0, 3));
        compare();
        const Attended after = attend(q, grown.cache, {&whole, 1}, {});
        EXPECT_SILENT(different_bits("fork", after.out.numbers(), before.out.numbers()));
      }
}

TEST(ShortContext, AWrongScaleIsRefusedHoweverFewKeysThereAre) {
  const Tensor k = random_tensor({1, 2, 10, 8}, 1), q = random_tensor({1, 2, 1, 8}, 2);
  const Grown grown({.kv_heads = 2, .dim = 8}, Context(1), k, k);
  for (const double base : {0.5, 0.0, 1.0})
    expect_refused([&] { attend(q, grown.cache, grown.one(), {.scale = Scale::log_n(base)}); },
                   {"log_n scale has base", "more than 1"});
}

/// However many heads share a key head.
TEST(ShortContext, ExplainNamesTheShortContext) {
  for (const Context& context : every_bf16_isa()) {
    const std::string words =
        explain({1, 32, 1, 64}, {1, 1, 40, 64}, {1, 1, 40, 64}, {}, Type::bf16, context);
    EXPECT_NE(words.find("route     short-context"), std::string::npos) << words;
    EXPECT_NE(words.find("f32 over 40 keys"), std::string::npos) << words;
    EXPECT_EQ(words.find("tasks"), std::string::npos) << words;
  }
}

TEST(ShortContext, OnlyTheOutputIsWrittenWhereTheCallerSays) {
  const Context& context = every_isa().front();
  const Small small({1, 2, 1, 16}, {1, 2, 20, 16});
  const Grown grown({.kv_heads = 2, .dim = 16}, context, small.k, small.v);
  const auto refused = [&](const auto& call, const std::string& word) {
    try {
      call();
      ADD_FAILURE() << "accepted; expected a refusal naming " << word;
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  };
  Tensor out({1, 2, 1, 16}), wide({1, 2, 1, 17});
  Tensor q = small.q.clone();
  refused([&] { attend_into(wide, q, grown.cache, grown.one(), {}); }, "17");
  refused([&] { attend_into(q, q, grown.cache, grown.one(), {}); }, "overlaps");
  refused([&] { attend_into(out, q, grown.cache, grown.one(), {.stats = true}); }, "statistics");
  for (const bool strict : {false, true}) {
    const Attention how{.pattern = causal(), .softcap = 3, .sinks = {0, 1}, .strict = strict};
    attend_into(out, q, grown.cache, grown.one(), how);
    EXPECT_SILENT(different_bits("out", out.numbers(),
                                 attend(q, grown.cache, grown.one(), how).out.numbers()));
  }
}

}  // namespace
}  // namespace rapt::test
