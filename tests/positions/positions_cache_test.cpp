#include <gtest/gtest.h>

#include <cmath>

#include "rapt/kv_cache.h"
#include "rapt/rope.h"
#include "support/engine.h"
#include "support/truth/bound.h"

// Positions and cached keys: what may be kept, and what happens if it is kept against the rule.
namespace rapt::test {
namespace {

constexpr Index all_tokens = 90, dim = 16;

/// tensor[0, :, first .. first + count - 1, :]
MutableView tokens_of(Tensor& tensor, Index first, Index count) {
  const MutableView all = tensor.view();
  return MutableView::unchecked(all.row(0, 0, first), {1, all.heads(), count, all.dim()},
                                all.strides());
}

/// Queries, keys and values as projected.
struct Projected {
  Tensor q = random_tensor({1, 4, all_tokens, dim}, 1);
  Tensor k = random_tensor({1, 2, all_tokens, dim}, 2);
  Tensor v = random_tensor({1, 2, all_tokens, dim}, 3);
};

/// How the rope of a step follows from the tokens there are.
using RopeAt = std::function<Rope(Index tokens)>;

/// The whole sequence at once, every key turned by the rope of the whole.
Attended whole_pass(const RopeAt& rope_at, const Context& context) {
  Projected p;
  const Rope rope = rope_at(all_tokens);
  rope.for_queries().apply(p.q, 0, context);
  rope.for_keys().apply(p.k, 0, context);
  return attend(p.q, p.k, p.v, {.pattern = causal(), .strict = true}, context);
}

/// Chunks and single tokens into a cache, each key turned once, when it is appended. The largest
/// difference to the whole pass over all outputs; 0 if every bit agrees.
double worst_of_steps(const RopeAt& rope_at, const Context& context) {
  const Attended whole = whole_pass(rope_at, context);
  Projected p;
  KvCache cache({.kv_heads = 2, .dim = dim}, context);
  const KvCache::Sequence sequence = cache.add();
  double worst = 0;
  for (Index first = 0; first < all_tokens;) {
    const Index count = first == 0 ? 40 : std::min<Index>(first % 3 + 1, all_tokens - first);
    const Rope rope = rope_at(first + count);
    const Positions here = cache.tokens(sequence);
    rope.for_queries().apply(tokens_of(p.q, first, count), here, context);
    rope.for_keys().apply(tokens_of(p.k, first, count), here, context);
    cache.append(sequence, tokens_of(p.k, first, count), tokens_of(p.v, first, count));
    const Attended part = attend(tokens_of(p.q, first, count), cache, {&sequence, 1},
                                 {.pattern = causal(), .strict = true});
    for (Index head = 0; head < 4; ++head)
      for (Index i = 0; i < count * dim; ++i)
        worst =
            std::fmax(worst, std::fabs(part.out.numbers()[head * count * dim + i] -
                                       whole.out.numbers()[(head * all_tokens + first) * dim + i]));
    first += count;
  }
  return worst;
}

std::vector<double> divisors(double last) {
  std::vector<double> list;
  for (Index i = 0; i < dim / 2; ++i) list.push_back(1 + last * static_cast<double>(i));
  return list;
}

TEST(PositionsCache, RotatedKeysOfStaticRopesAreThoseOfTheWholePass) {
  std::vector<Rope> ropes;
  for (const RopeScaling& scaling :
       {RopeScaling{}, RopeScaling{LinearRope{4}}, RopeScaling{NtkRope{4}},
        RopeScaling{YarnRope{.factor = 4, .trained_tokens = 32}},
        RopeScaling{Llama3Rope{.trained_tokens = 32}}})
    ropes.push_back(Rope({.dim = dim, .scaling = scaling}));
  ropes.push_back(Rope({.dim = dim, .rotated = 8, .layout = RopeLayout::interleaved}));
  ropes.push_back(Rope({.dim = dim, .rotated = 8, .proportional = true}));
  ropes.push_back(Rope({.dim = dim, .sections = {.pairs = {2, 3, 3}}}));
  ropes.push_back(Rope({.dim = dim, .xpos = XPos{.center = 45}}));
  for (const Rope& rope : ropes) {
    EXPECT_EQ(rope.cache_rule(),
              (CacheRule{CacheRule::Keys::rotated, CacheRule::Renumbering::by_rotation}));
    for (const Context& context : every_isa())
      EXPECT_EQ(worst_of_steps([&](Index) { return rope; }, context), 0) << context.isa();
  }
}

TEST(PositionsCache, LongRopeMayBeCachedOnceItsLengthIsFixed) {
  const Rope rope(
      {.dim = dim,
       .scaling = LongRope{
           .short_factors = divisors(0), .long_factors = divisors(2), .trained_tokens = 50}});
  EXPECT_EQ(rope.cache_rule().keys, CacheRule::Keys::rotated_if_fixed);
  const Context& context = every_isa().front();
  EXPECT_EQ(worst_of_steps([&](Index) { return rope.for_length(all_tokens); }, context), 0);
  EXPECT_GT(worst_of_steps([&](Index tokens) { return rope.for_length(tokens); }, context), 0.01);
}

TEST(PositionsCache, RotatedKeysOfDynamicNtkGoStale) {
  const Rope rope({.dim = dim, .scaling = DynamicNtkRope{4, 50}});
  EXPECT_EQ(rope.cache_rule(),
            (CacheRule{CacheRule::Keys::unrotated, CacheRule::Renumbering::by_rotating_again}));
  const Context& context = every_isa().front();
  EXPECT_GT(worst_of_steps([&](Index tokens) { return rope.for_length(tokens); }, context), 0.01);
  // Frozen at the longest sequence to come they are as good as any.
  EXPECT_EQ(worst_of_steps([&](Index) { return rope.for_length(all_tokens); }, context), 0);
}

TEST(PositionsCache, UnrotatedKeysServeDynamicNtkAtEveryLength) {
  const Rope dynamic({.dim = dim, .scaling = DynamicNtkRope{4, 50}});
  for (const Index tokens : {40, 51, 90}) {
    Projected p;  // the keys a cache of plain keys would hold, turned by the rope of the moment
    const Rope now = dynamic.for_length(tokens);
    const Rope want({.dim = dim, .scaling = NtkRope{tokens <= 50 ? 1 : 4.0 * tokens / 50 - 3}});
    Tensor a = p.k.clone(), b = p.k.clone();
    now.apply(a);
    want.apply(b);
    EXPECT_SILENT(different_bits("dynamic", a.numbers(), b.numbers()));
  }
}

TEST(PositionsCache, EvictedTokensLeaveKeysThatCanBeRenumbered) {
  // Keep the first 4 and the last 20 tokens, and let those take positions 0 .. 23.
  const Rope rope({.dim = dim, .scaling = YarnRope{.factor = 2, .trained_tokens = 64}});
  Projected p;
  Tensor kept({1, 2, 24, dim}), shifted({1, 2, 24, dim});
  const auto copy = [&](Tensor& from, Index first, Index count, Tensor& to, Index at) {
    for (Index head = 0; head < 2; ++head)
      std::copy_n(from.view().row(0, head, first), count * dim, to.view().row(0, head, at));
  };
  copy(p.k, 0, 4, kept, 0);
  copy(p.k, 70, 20, kept, 4);
  rope.apply(kept);  // turned at their new places
  rope.apply(p.k);   // turned at their old places
  copy(p.k, 0, 4, shifted, 0);
  copy(p.k, 70, 20, shifted, 4);
  rope.shift(tokens_of(shifted, 4, 20), 4 - 70);
  for (std::size_t i = 0; i < kept.numbers().size(); ++i)
    EXPECT_NEAR(shifted.numbers()[i], kept.numbers()[i], 2e-6);
}

TEST(PositionsCache, BiasesByDistanceNeedPlainKeysOnly) {
  EXPECT_EQ(relative_cache_rule.keys, CacheRule::Keys::plain);
  EXPECT_EQ(relative_cache_rule.renumbering, CacheRule::Renumbering::free);
  EXPECT_EQ(absolute_cache_rule.renumbering, CacheRule::Renumbering::impossible);
}

}  // namespace
}  // namespace rapt::test
