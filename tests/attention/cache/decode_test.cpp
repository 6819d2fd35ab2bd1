#include <gtest/gtest.h>

#include <limits>

#include "rapt/kv_cache.h"
#include "support/cache_cases.h"
#include "support/engine.h"
#include "support/truth/bound.h"

namespace rapt::test {
namespace {

/// Rows of a head that fill no whole strip of four share one with rows of the next head.
TEST(Decode, FewQueriesOfSeveralHeadsAreWithinTheBound) {
  std::uint64_t seed = 1;
  for (const bool finite : {true, false})
    for (const Index tokens : {38, 64, 102})
      for (const Index queries : {1, 2, 3, 5, 7})
        for (const char* pattern : {"window(9, 0) | keys(3)", "causal & chunks(16, 0, 0)"})
          for (const Context& context : every_isa()) {
            const Tensor q = random_tensor({1, 5, queries, 24}, ++seed);
            const Tensor k = random_tensor({1, 5, tokens, 24}, seed + 1);
            Tensor v = random_tensor({1, 5, tokens, 20}, seed + 2);
            const Attention how{.pattern = Pattern::parse(pattern)};
            const Defined want = define(problem(q, k, v, how));
            if (!finite) at(v, 0, 1, 5, 2) = std::numeric_limits<float>::quiet_NaN();  // hidden
            KvCache cache({.kv_heads = 5, .dim = 24, .value_dim = 20}, context);
            const KvCache::Sequence sequence = cache.add();
            cache.append(sequence, k, v);
            EXPECT_WITHIN_BOUND(attend(q, cache, {&sequence, 1}, how), want,
                                std::to_string(queries) + " queries, " + std::to_string(tokens) +
                                    " tokens, " + pattern + " on " + context.isa() + ", seed " +
                                    std::to_string(seed) + (finite ? "" : ", a NaN"));
          }
}

}  // namespace
}  // namespace rapt::test
