#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "attention/call.h"
#include "support/engine.h"

namespace rapt::test {
using namespace detail;
namespace {

TEST(ScoreRule, PartsOfADiagonalHaveTheBitsOfTheTable) {
  constexpr Index heads = 3, keys = 1000;
  Tensor table = random_tensor({32, heads}, 1);
  table.data()[5 * heads] = -std::numeric_limits<float>::infinity();
  const Shape q{1, heads, 2, 4}, kv{1, heads, keys, 4};
  const Context& context = every_isa().front();
  for (const Bias& bias :
       {alibi(heads), t5_bias(table.view()), alibi(heads) + t5_bias(table.view()),
        t5_bias(table.view(), 128, RelativeTable::Direction::past),
        alibi({1e38f, -2, std::numeric_limits<float>::infinity()})}) {
    const Attention how{.bias = bias};
    const Call call(Request{"test", stand_in(q), stand_in(kv), stand_in(kv), how, context});
    for (Index head = 0; head < heads; ++head)
      for (Index first = -keys; first + tile <= tile; first += 37) {
        float part[tile];
        call.score_rule.diagonal_part(head, first, tile, part);
        for (Index i = 0; i < tile; ++i)
          ASSERT_EQ(std::bit_cast<std::uint32_t>(part[i]),
                    std::bit_cast<std::uint32_t>(call.score_rule.diagonal(head)[first + i]))
              << head << ' ' << first + i;
      }
  }
}

}  // namespace
}  // namespace rapt::test
