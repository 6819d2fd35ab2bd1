#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/torch_random.h"
#include "rapt/kv_cache.h"
#include "support/engine.h"
#include "support/refused.h"
#include "support/truth/bound.h"
#include "support/truth/hashed_truth.h"

namespace rapt::test {
using namespace detail;
namespace {

/// Tokens [first, last) of all heads.
Tensor part(const Tensor& x, Index first, Index last) {
  const Shape& shape = x.shape();
  Tensor y({1, shape[1], last - first, shape[3]});
  for (Index head = 0; head < shape[1]; ++head)
    std::copy_n(x.data() + (head * shape[2] + first) * shape[3], (last - first) * shape[3],
                y.data() + head * (last - first) * shape[3]);
  return y;
}

const std::vector<Lsh>& decodable() {
  static const std::vector<Lsh> all = {
      {.chunk = 8, .rounds = 3, .buckets = {4, 2}},
      {.chunk = 16, .rounds = 1, .buckets = {6}, .after = 1},
      {.chunk = 4, .rounds = 2, .buckets = {16, 8}, .seed = 5, .before = 2},
      {.chunk = 20, .rounds = 1, .buckets = {4}, .before = 2, .after = 2},  // a ring that repeats
      {.chunk = 8, .rounds = 4, .buckets = {4}, .duplicates = Lsh::Duplicates::once}};
  return all;
}

struct Grown {
  Grown(const Lsh& options, const Context& context_, CacheType type = CacheType::f32)
      : lsh(options),
        context(context_),
        cache({.kv_heads = 2,
               .dim = 8,
               .value_dim = 5,
               .type = type,
               .lsh = CacheLsh{.lsh = options}},
              context),
        sequence(cache.add()) {}

  /// Appends tokens [first, last) and asks for them.
  Attended grow(const Tensor& x, const Tensor& v, Index first, Index last, const Pattern& rest) {
    const Tensor q = part(x, first, last);
    cache.append(sequence, q, part(v, first, last));
    return attend(q, cache, {&sequence, 1}, {.pattern = rapt::lsh(lsh) & rest});
  }

  Lsh lsh;
  Context context;
  KvCache cache;
  KvCache::Sequence sequence;
};

TEST(LshCache, EveryTokenSeesWhatTheDefinitionSays) {
  constexpr Index tokens = 61;
  const Tensor x = random_tensor({1, 2, tokens, 8}, 1), v = random_tensor({1, 2, tokens, 5}, 2);
  for (const Lsh& lsh : decodable())
    for (const char* rest :
         {"full", "causal", "causal & (window(9, 0) | tokens({0}))", "prefix(2)"}) {
      Grown grown(lsh, every_isa().front());
      const HashedTruth truth(lsh, 2, 8);
      const Pattern pattern = Pattern::parse(rest);
      Index first = 0;
      // A prompt, single tokens across the length of a chunk, a few at a time.
      for (const Index count : {3, 1, 1, 1, 1, 1, 1, 1, 1, 9, 1, 1, 5, 17, 1, 2, 1, 13}) {
        const Attended got = grown.grow(x, v, first, first + count, pattern);
        const Tensor sofar = part(x, 0, first + count), values = part(v, 0, first + count);
        for (Index head = 0; head < 2; ++head)
          for (Index i = 0; i < count; ++i) {
            const Doubles want = truth.out(sofar, values, head, first + i, pattern);
            for (std::size_t c = 0; c < 5; ++c) {
              const float y = got.out.numbers()[static_cast<std::size_t>((head * count + i) * 5 +
                                                                         static_cast<Index>(c))];
              // Denominators at -1e5 are off by a few parts in a thousand, as in Transformers.
              const double slack =
                  got.lse.numbers()[head * count + i] < -5e4 ? 6e-3 * std::abs(want[c]) : 0;
              ASSERT_NEAR(y, want[c], 2e-6 + slack)
                  << "token " << first + i << ' ' << rest << ' ' << to_string(rapt::lsh(lsh));
            }
          }
        first += count;
      }
      EXPECT_EQ(first, tokens);
    }
}

/// What does not depend on a cache must not: the newest rows of a call without one.
TEST(LshCache, AgreesWithTheCallWithoutCache) {
  constexpr Index tokens = 150;
  const Tensor x = random_tensor({1, 2, tokens, 8}, 1), v = random_tensor({1, 2, tokens, 5}, 2);
  for (const Lsh& lsh : decodable())
    for (const Context& context : every_isa())
      for (const char* rest : {"full", "causal"}) {
        const Attention how{.pattern = rapt::lsh(lsh) & Pattern::parse(rest)};
        Grown grown(lsh, context);
        Index first = 0;
        for (const Index count : {100, 1, 1, 1, 25, 1, 21}) {
          const Attended got = grown.grow(x, v, first, first + count, Pattern::parse(rest));
          first += count;
          const Tensor all = part(x, 0, first);
          const Attended want = attend(all, all, part(v, 0, first), how, context);
          for (Index head = 0; head < 2; ++head)
            for (Index i = 0; i < count; ++i) {
              const Index here = head * count + i, there = head * first + first - count + i;
              ASSERT_NEAR(got.lse.data()[here], want.lse.data()[there],
                          1e-6 * std::max(1.0f, std::abs(want.lse.data()[there])));
              for (Index c = 0; c < 5; ++c)
                ASSERT_NEAR(got.out.data()[here * 5 + c], want.out.data()[there * 5 + c], 2e-6)
                    << context.isa() << ' ' << to_string(how.pattern) << ", " << first << " tokens";
            }
        }
      }
}

/// A whole prompt takes another way than single queries, with the same neighbours.
TEST(LshCache, APromptIsWhatItsQueriesAre) {
  const Tensor x = random_tensor({1, 2, 130, 8}, 1), v = random_tensor({1, 2, 130, 5}, 2);
  for (const Lsh& lsh : decodable())
    for (const Index tokens : {12, 17, 60, 130}) {
      Grown grown(lsh, every_isa().front());
      const Attended whole = grown.grow(x, v, 0, tokens, causal());
      const Attention strict{.pattern = rapt::lsh(lsh) & causal(), .strict = true};
      const Attended single = attend(part(x, 0, tokens), grown.cache, {&grown.sequence, 1}, strict);
      EXPECT_EQ(single.rows.order, nullptr);
      for (std::size_t i = 0; i < whole.out.numbers().size(); ++i)
        ASSERT_NEAR(whole.out.numbers()[i], single.out.numbers()[i], 2e-6)
            << to_string(rapt::lsh(lsh)) << ", " << tokens << " tokens";
      for (std::size_t i = 0; i < whole.lse.numbers().size(); ++i)
        ASSERT_NEAR(whole.lse.numbers()[i], single.lse.numbers()[i],
                    1e-6 * std::max(1.0f, std::abs(single.lse.numbers()[i])));
    }
}

TEST(LshCache, SequencesOfDifferentLengthsForksAndThreads) {
  const Lsh lsh{.chunk = 8, .rounds = 2, .buckets = {8}};
  const Attention how{.pattern = rapt::lsh(lsh) & causal()};
  const Tensor x = random_tensor({1, 2, 90, 8}, 1), v = random_tensor({1, 2, 90, 5}, 2);
  std::optional<Attended> on_one_thread;
  for (const Index threads : {1, 3}) {
    Grown grown(lsh, Context(threads));
    KvCache& cache = grown.cache;
    std::vector<KvCache::Sequence> all = {cache.add(), cache.add(), cache.add()};
    const Index lengths[] = {5, 40, 71};
    for (std::size_t i = 0; i < 3; ++i)
      cache.append(all[i], part(x, 0, lengths[i]), part(v, 0, lengths[i]));
    all.push_back(cache.fork(all[1]));
    cache.append(all[1], part(x, 40, 60), part(v, 40, 60));  // the fork must not notice
    cache.append(all[3], part(x, 40, 41), part(v, 40, 41));
    cache.truncate(all[1], 41);
    Tensor q({4, 2, 1, 8});
    for (Index item = 0; item < 4; ++item) {
      const Index last = cache.tokens(all[static_cast<std::size_t>(item)]) - 1;
      std::copy_n(part(x, last, last + 1).data(), 16, q.data() + item * 16);
    }
    Attended together = attend(q, cache, all, how);
    if (on_one_thread) {
      EXPECT_SAME_BITS(together, *on_one_thread);
    }
    const auto row = [&](std::size_t item) {
      return together.out.numbers().subspan(item * 10, 10);
    };
    EXPECT_SILENT(different_bits("fork", row(1), row(3)));
    for (std::size_t item = 0; item < 4; ++item) {
      const Index tokens = cache.tokens(all[item]);
      const Tensor sofar = part(x, 0, tokens);
      const Attended want = attend(sofar, sofar, part(v, 0, tokens), how);
      for (Index head = 0; head < 2; ++head)
        for (Index c = 0; c < 5; ++c)
          EXPECT_NEAR(row(item)[head * 5 + c],
                      want.out.data()[(head * tokens + tokens - 1) * 5 + c], 2e-6);
    }
    on_one_thread = std::move(together);
  }
}

TEST(LshCache, PaddingIsSortedToTheEndAndNeverSeen) {
  const Lsh lsh{.chunk = 8, .rounds = 2, .buckets = {4}};
  const Tensor x = random_tensor({1, 2, 50, 8}, 1), v = random_tensor({1, 2, 50, 5}, 2);
  std::vector<bool> padding(50, false);
  std::fill(padding.begin(), padding.begin() + 13, true);
  std::vector<Index> real(37);
  std::iota(real.begin(), real.end(), 13);
  // The same call without cache hides the padding by a pattern.
  const Pattern hidden = blocks(1, std::vector<std::vector<Index>>(50, real));
  const Attended want =
      attend(x, x, v, {.pattern = rapt::lsh(lsh) & causal() & hidden}, every_isa().front());
  Grown grown(lsh, every_isa().front());
  grown.cache.append_padding(grown.sequence, 13);
  const Attended got = grown.grow(x, v, 13, 50, causal());
  const HashedTruth truth(lsh, 2, 8);
  for (Index head = 0; head < 2; ++head)
    for (Index i = 14; i < 50; ++i)  // token 13 sees itself only
      for (Index c = 0; c < 5; ++c) {
        const float y = got.out.data()[(head * 37 + i - 13) * 5 + c];
        EXPECT_NEAR(y, want.out.data()[(head * 50 + i) * 5 + c], 2e-6);
        EXPECT_NEAR(y, truth.out(x, v, head, i, causal(), padding)[static_cast<std::size_t>(c)],
                    got.lse.data()[head * 37 + i - 13] < -5e4 ? 6e-3 : 2e-6);
      }
}

/// Storing less exactly moves answers a little, by what the type rounds.
TEST(LshCache, OtherTypesStoreLessExactly) {
  const Lsh lsh{.chunk = 16, .rounds = 2, .buckets = {4}};
  const Tensor x = random_tensor({1, 2, 80, 8}, 1), v = random_tensor({1, 2, 80, 5}, 2);
  for (const Context& context : every_isa()) {
    Grown exact(lsh, context), half(lsh, context, CacheType::bf16),
        eighth(lsh, context, CacheType::int8);
    const Attended want = exact.grow(x, v, 0, 80, causal());
    const Attended bf16 = half.grow(x, v, 0, 80, causal());
    const Attended int8 = eighth.grow(x, v, 0, 80, causal());
    for (std::size_t i = 0; i < want.out.numbers().size(); ++i) {
      ASSERT_NEAR(bf16.out.numbers()[i], want.out.numbers()[i], 0.03) << context.isa();
      ASSERT_NEAR(int8.out.numbers()[i], want.out.numbers()[i], 0.06) << context.isa();
    }
    EXPECT_NE(different_bits("bf16", bf16.out.numbers(), want.out.numbers()), "");
  }
}

TEST(LshCache, RotationsAndChosenBucketsAreKept) {
  const Lsh seeded{.chunk = 8, .rounds = 2, .buckets = {8}, .seed = 9};
  const Tensor x = random_tensor({1, 2, 60, 8}, 1), v = random_tensor({1, 2, 60, 5}, 2);
  Grown by_seed(seeded, every_isa().front());
  const Attended want = by_seed.grow(x, v, 0, 60, causal());
  Lsh other = seeded;
  other.seed = 0;
  Tensor rotations({2, 8, 2, 4});
  TorchRandom(9).normal(rotations.numbers());
  CacheOptions options{.kv_heads = 2, .dim = 8, .value_dim = 5, .lsh = CacheLsh{.lsh = other}};
  options.lsh->rotations = rotations.view();
  KvCache cache(options, every_isa().front());
  std::fill(rotations.numbers().begin(), rotations.numbers().end(), 0.0f);  // copied, not borrowed
  const KvCache::Sequence sequence = cache.add();
  cache.append(sequence, x, v);
  EXPECT_SAME_BITS(attend(x, cache, {&sequence, 1}, {.pattern = lsh(other) & causal()}), want);
  EXPECT_FALSE(cache.options().lsh->rotations);
  // Buckets for a stated length are those of a call of that length.
  Lsh none = seeded, chosen = seeded;
  none.buckets.clear();
  chosen.buckets = lsh_buckets(60, 8);
  KvCache sized({.kv_heads = 2, .dim = 8, .value_dim = 5, .lsh = CacheLsh{none, 60}},
                every_isa().front());
  Grown named(chosen, every_isa().front());
  const KvCache::Sequence s = sized.add();
  sized.append(s, x, v);
  EXPECT_SAME_BITS(attend(x, sized, {&s, 1}, {.pattern = lsh(none) & causal()}),
                   named.grow(x, v, 0, 60, causal()));
}

TEST(LshCache, NanComesOutOnlyWhereItIsSeen) {
  const Lsh lsh{.chunk = 8, .rounds = 1, .buckets = {4}};
  const Tensor x = random_tensor({1, 2, 40, 8}, 1);
  Tensor v = random_tensor({1, 2, 40, 5}, 2);
  at(v, 0, 0, 3, 1) = std::numeric_limits<float>::quiet_NaN();
  Grown grown(lsh, every_isa().front());
  const Attended got = grown.grow(x, v, 0, 40, window(5, 0));
  Index seen = 0;
  for (Index i = 0; i < 40; ++i) seen += std::isnan(got.out.data()[i * 5 + 1]);
  EXPECT_GE(seen, 1);
  EXPECT_LE(seen, 6);
  for (Index i = 40; i < 80; ++i) EXPECT_FALSE(std::isnan(got.out.data()[i * 5 + 1]));
  for (Index i = 0; i < 40; ++i) EXPECT_FALSE(std::isnan(got.out.data()[i * 5]));
}

TEST(LshCache, ExplainRefusesWhatAttendRefuses) {
  const Lsh leaf{.chunk = 16, .buckets = {4}};
  const CacheOptions plain{.kv_heads = 2, .dim = 8};
  CacheOptions hashed = plain;
  hashed.lsh = CacheLsh{.lsh = leaf};
  const Attention asked{.pattern = lsh(leaf)};
  expect_refused([&] { explain({1, 2, 1, 8}, plain, 40, asked); }, {"CacheOptions::lsh"});
  expect_refused([&] { explain({1, 2, 41, 8}, hashed, 40, asked); }, {"41 queries", "40 tokens"});
  expect_refused([&] { explain({1, 2, 1, 9}, hashed, 40, asked); }, {"dim 9", "8"});
}

TEST(LshCache, MistakesAreNamed) {
  const auto make = [](const Lsh& lsh, std::optional<Index> tokens = {},
                       std::optional<Index> window = {}, std::optional<View> rotations = {}) {
    return [=] {
      CacheOptions options{.kv_heads = 2, .dim = 8, .window = window};
      options.lsh = CacheLsh{lsh, tokens, rotations};
      KvCache cache(options);
    };
  };
  Lsh odd, many, separate, four;
  odd.buckets = {3};
  many.buckets = {512, 256};
  separate.buckets = four.buckets = {4};
  separate.keys = Lsh::Keys::separate;
  expect_refused(make({}), {"without buckets", "CacheLsh::tokens"});
  expect_refused(make(odd), {"3", "even"});
  expect_refused(make(many), {"131072", "65535"});
  expect_refused(make(separate), {"separate", "shared"});
  expect_refused(make({}, -4), {"-4"});
  expect_refused(make(four, {}, 64), {"window of 64"});
  const Tensor x = random_tensor({1, 2, 20, 8}, 1);
  expect_refused(make(four, {}, {}, x.view()), {"[1, 2, 20, 8]", "[2, 8, 1, 2]"});
  const Lsh lsh{.chunk = 8, .buckets = {4}};
  KvCache plain({.kv_heads = 2, .dim = 8}), hashed({.kv_heads = 2, .dim = 8, .lsh = CacheLsh{lsh}});
  const KvCache::Sequence a = plain.add(), b = hashed.add();
  plain.append(a, x, x);
  hashed.append(b, x, x);
  const auto ask = [&](const KvCache& cache, KvCache::Sequence s, const Attention& how) {
    return [&cache, s, how, &x] { attend(x, cache, {&s, 1}, how); };
  };
  expect_refused(ask(plain, a, {.pattern = rapt::lsh(lsh)}), {"without one", "CacheOptions::lsh"});
  expect_refused(ask(hashed, b, {.pattern = causal()}), {"has none"});
  expect_refused(ask(hashed, b, {.pattern = rapt::lsh({.chunk = 16, .buckets = {4}})}),
                 {"lsh(16", "lsh(8"});
  expect_refused(ask(hashed, b, {.pattern = rapt::lsh(lsh), .bias = alibi(2)}), {"bias"});
  expect_refused(ask(hashed, b, {.pattern = rapt::lsh(lsh), .dropout = {.rate = 0.5}}),
                 {"dropout of 0.5"});
  expect_refused(ask(hashed, b, {.pattern = rapt::lsh(lsh), .rotations = x.view()}), {"rotations"});
  expect_refused(ask(hashed, b, {.pattern = rapt::lsh(lsh) & documents({30})}), {"documents"});
  expect_refused([&] { hashed.append_padding(b, -1); }, {"-1"});
  expect_refused([&] { hashed.append_padding(b, Index{1} << 40); }, {"at most"});
  expect_refused([&] { plain.append_padding(a, 3); }, {"not hashed"});
  const Tensor more = random_tensor({1, 2, 21, 8}, 1), wide = random_tensor({1, 4, 1, 8}, 1);
  expect_refused(
      [&] {
        attend(more, hashed, {&b, 1}, {.pattern = rapt::lsh(lsh)});
      },
      {"21 queries", "20 tokens"});
  expect_refused(
      [&] {
        attend(wide, hashed, {&b, 1}, {.pattern = rapt::lsh(lsh)});
      },
      {"4 heads", "2 of 8"});
}

}  // namespace
}  // namespace rapt::test
