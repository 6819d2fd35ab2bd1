#include "attention/dispatch.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "support/engine.h"

namespace rapt::test {
using namespace detail;
namespace {

/// What `explain` calls the route.
std::string named(const std::string& words) {
  const std::string before = "route     ";
  const std::size_t at = words.rfind(before, 0) == 0 ? before.size() : words.find("\n" + before);
  EXPECT_NE(at, std::string::npos) << words;
  return words.substr(at, words.find(':', at) - at);
}

std::string ran() {
  const std::string name = last_route == nullptr ? "none" : last_route;
  last_route = nullptr;
  return name;
}

/// Every part of the score alone, and the options that choose a route.
std::map<std::string, Attention> hows(Index heads, const Tensor& table, const Tensor& relative,
                                      const Tensor& dense) {
  std::map<std::string, Attention> all;
  all["plain"] = {};
  all["causal"].pattern = causal();
  all["window"].pattern = window(7, 0);
  all["two ranges"].pattern = window(7, 0) | prefix(4);
  all["strict"].strict = true;
  all["stats"].stats = true;
  all["softcap"].softcap = 3;
  all["log_n"].scale = Scale::log_n(10);
  all["alibi"].bias = alibi(heads);
  all["table"].bias = t5_bias(table.view());
  all["relative keys"].bias = relative_keys(relative.view());
  all["relative values"].relative_values = relative.view();
  all["dense"].bias = dense_bias(dense.view());
  all["sinks"].sinks = std::vector<float>(static_cast<std::size_t>(heads), 0.5f);
  all["dropout"].dropout.rate = 0.25f;
  Lsh leaf;
  leaf.chunk = 4, leaf.rounds = 2, leaf.buckets = {4};
  all["lsh"].pattern = lsh(leaf);
  all["causal lsh"].pattern = causal() & lsh(leaf);
  return all;
}

class DispatchGrid {
 public:
  DispatchGrid(Index queries, Index keys, Type type)
      : queries_(queries),
        keys_(keys),
        type_(type),
        q_(random_tensor({2, heads, queries, dim}, 1).converted(type)),
        k_(random_tensor({2, heads, keys, dim}, 2).converted(type)),
        v_(random_tensor({2, heads, keys, dim}, 3).converted(type)),
        table_(random_tensor({32, heads}, 4)),
        relative_(random_tensor({9, dim}, 5)),
        dense_(random_tensor({1, heads, queries, keys}, 6)),
        hows_(hows(heads, table_, relative_, dense_)) {}

  void operands(const Context& context, std::set<std::string>& seen) const {
    for (const auto& [name, how] : hows_) {
      if (to_string(how.pattern).find("lsh") != std::string::npos && queries_ != keys_) continue;
      attend(q_, k_, v_, how, context);
      const std::string route = ran();
      EXPECT_EQ(route, named(explain(q_.shape(), k_.shape(), v_.shape(), how, type_, context)))
          << what(name, context);
      seen.insert(route);
    }
  }

  void cached(const Context& context, CacheType type, std::set<std::string>& seen) const {
    for (const auto& [name, how] : hows_) {
      const std::optional<Lsh> leaf = lsh_part(how.pattern);
      CacheOptions options{.kv_heads = heads, .dim = dim, .type = type};
      if (leaf) options.lsh = CacheLsh{.lsh = *leaf};
      KvCache cache(options, context);
      const KvCache::Sequence sequence = cache.add();
      cache.append(sequence, item(k_), item(v_));
      attend(item(q_), cache, {&sequence, 1}, how);
      const std::string route = ran();
      const Shape shape{1, heads, queries_, dim};
      const std::string over = what(name, context) + " over " + to_string(type);
      EXPECT_EQ(route, named(explain(shape, cache, {&sequence, 1}, how, type_))) << over;
      EXPECT_EQ(route, named(explain(shape, cache.options(), keys_, how, type_, context))) << over;
      seen.insert(route);
    }
  }

 private:
  static constexpr Index heads = 2, dim = 16;

  static AnyView item(const Tensor& tensor) {
    const AnyView all = tensor;
    Shape shape = all.shape();
    shape[0] = 1;
    return AnyView::unchecked(all.row(0, 0, 0), all.type(), shape, all.strides());
  }
  std::string what(const std::string& name, const Context& context) const {
    return name + ", " + std::to_string(queries_) + " queries, " + std::to_string(keys_) +
           " keys, " + to_string(type_) + " on " + context.isa();
  }

  Index queries_, keys_;
  Type type_;
  Tensor q_, k_, v_, table_, relative_, dense_;
  std::map<std::string, Attention> hows_;
};

/// Every case is run and explained: the engine that computed wrote its name down.
TEST(Dispatch, ExplainNamesTheRouteThatRan) {
  std::set<std::string> seen;
  for (const Type type : {Type::f32, Type::bf16, Type::f16})
    for (const auto& [queries, keys] : std::vector<std::pair<Index, Index>>{{1, 1},
                                                                            {1, 40},
                                                                            {1, 64},
                                                                            {1, 65},
                                                                            {1, 130},
                                                                            {4, 70},
                                                                            {8, 70},
                                                                            {9, 70},
                                                                            {40, 40},
                                                                            {70, 70},
                                                                            {0, 5}}) {
      const DispatchGrid grid(queries, keys, type);
      for (const Context& context : every_isa()) grid.operands(context, seen);
      for (const Context& context : every_bf16_isa()) grid.operands(context, seen);
      for (const CacheType stored : {CacheType::f32, CacheType::bf16, CacheType::int8})
        grid.cached(every_isa().front(), stored, seen);
    }
  for (const Route& route : routes())
    EXPECT_TRUE(seen.contains(route.name) ||
                (every_bf16_isa().empty() && route.name == std::string("bf16-tiles")))
        << route.name << " was never taken";
}

TEST(Dispatch, RoutesHaveNamesOfTheirOwnAndTheLastTakesEverything) {
  std::set<std::string> names;
  for (const Route& route : routes()) EXPECT_TRUE(names.insert(route.name).second) << route.name;
  const Attention how;
  const Context context(1);
  const AnyView nothing = stand_in({0, 0, 0, 1});
  Request request{"test", nothing, nothing, nothing, how, context};
  EXPECT_EQ(routes().back().why_not(request), nullptr);
}

/// A batch whose sequences take different routes gives each the bits that it has alone.
TEST(Dispatch, SequencesOfABatchTakeRoutesOfTheirOwn) {
  for (const Context& context : every_isa()) {
    KvCache cache({.kv_heads = 2, .dim = 16}, context);
    std::vector<KvCache::Sequence> sequences;
    std::uint64_t seed = 1;
    for (const Index tokens : {3, 200, 64, 65, 1}) {
      sequences.push_back(cache.add());
      const Tensor k = random_tensor({1, 2, tokens, 16}, ++seed);
      const Tensor v = random_tensor({1, 2, tokens, 16}, ++seed);
      cache.append(sequences.back(), k, v);
    }
    const Tensor q = random_tensor({5, 4, 1, 16}, 99);
    const Attended all = attend(q, cache, sequences, {});
    std::set<std::string> taken;
    for (Index i = 0; i < 5; ++i) {
      Tensor one({1, 4, 1, 16});
      std::copy_n(q.data() + i * 64, 64, one.data());
      const Attended alone = attend(one, cache, {&sequences[static_cast<std::size_t>(i)], 1}, {});
      taken.insert(ran());
      for (Index c = 0; c < 64; ++c)
        ASSERT_EQ(alone.out.data()[c], all.out.data()[i * 64 + c]) << i << " on " << context.isa();
      for (Index c = 0; c < 4; ++c)
        ASSERT_EQ(alone.lse.data()[c], all.lse.data()[i * 4 + c]) << i << " on " << context.isa();
    }
    EXPECT_EQ(taken, (std::set<std::string>{"decode", "short-context"}));
  }
}

}  // namespace
}  // namespace rapt::test
