#pragma once

#include "distributed/collective_cases.h"
#include "rapt/distributed/attention.h"
#include "rapt/lsh.h"

// Attention over the ranks of any communicator. Every rank also computes the whole call alone, and
// compares its own rows. Public headers only.
namespace rapt::test {

inline Tensor numbers_of(const Shape& shape, std::uint64_t seed) {
  Tensor tensor(shape);
  std::mt19937_64 random(seed);
  for (float& x : tensor.numbers()) x = static_cast<float>(random() % 4001) / 1000.0f - 2.0f;
  return tensor;
}

inline void expect_equal(const Tensor& got, const Tensor& want, const char* what) {
  ASSERT_EQ(got.shape(), want.shape()) << what;
  const auto bytes = static_cast<std::size_t>(got.elements()) * sizeof(float);
  EXPECT_EQ(std::memcmp(got.data(), want.data(), bytes), 0) << what << " has other bits";
}

inline void expect_close(const Tensor& got, const Tensor& want, const char* what) {
  ASSERT_EQ(got.shape(), want.shape()) << what;
  for (std::size_t i = 0; i < got.numbers().size(); ++i)
    ASSERT_NEAR(got.numbers()[i], want.numbers()[i], 2e-4) << what << "[" << i << "]";
}

struct AttentionCase {
  Attention how;
  bool strict;
  Index tokens;
};

/// Forward and backward of this rank against one machine.
inline void expect_attention(Communicator& communicator, const AttentionCase& c) {
  using namespace distributed;
  const Index rank = communicator.rank(), n = c.tokens;
  const bool hashed = lsh_part(c.how.pattern).has_value();
  const Shape shape{2, 4, n, 16}, kv{2, hashed ? 4 : 2, n, 16};
  const Tensor q = numbers_of(shape, 1), k = numbers_of(kv, 2), v = numbers_of(kv, 3);
  const Tensor dout = numbers_of(shape, 4);
  const Context one(1);
  Attention how = c.how;
  how.strict = true;
  const Attended forward = attend(q, k, v, how, one);
  const Gradients backward = attend_backward(dout, q, k, v, forward, how, one);

  const Placement placement = balanced_placement(n, communicator.size(), {&c.how.pattern, 1},
                                                 {.granule = c.strict ? 8 : 1});
  const Exchange exchange(c.how.pattern, placement, {.strict = c.strict, .group = 2});
  const auto mine = [&](const Tensor& whole) { return shard(whole, placement, rank); };
  const Tensor own_q = mine(q), own_k = mine(k), own_v = mine(v);
  const Attended got = distributed::attend(communicator, exchange, own_q, own_k, own_v, c.how, one);
  const Gradients gradients = distributed::attend_backward(communicator, exchange, mine(dout),
                                                           own_q, own_k, own_v, got, c.how, one);
  const auto expect = c.strict || hashed ? expect_equal : expect_close;
  expect(got.out, mine(forward.out), "out");
  expect(gradients.dq, mine(backward.dq), "dq");
  expect(gradients.dk, mine(backward.dk), "dk");
  expect(gradients.dv, mine(backward.dv), "dv");
}

inline void attention_over_ranks(Communicator& communicator, bool strict) {
  for (const Index tokens : {1, 900})
    for (const char* text :
         {"causal", "window(100, 30) | tokens({0})", "causal & documents({300, 400})"}) {
      if (tokens < 700 && std::string_view(text).ends_with("400})")) continue;
      SCOPED_TRACE(text);
      expect_attention(communicator, {{.pattern = Pattern::parse(text),
                                       .bias = alibi(4),
                                       .sinks = {0, 1, -1, 0.5f},
                                       .dropout = {0.1, 3}},
                                      strict,
                                      tokens});
    }
}

inline void attention_is_that_of_one_machine(Communicator& communicator) {
  attention_over_ranks(communicator, false);
}
inline void strict_attention_has_the_bits_of_one_machine(Communicator& communicator) {
  attention_over_ranks(communicator, true);
}
inline void hashed_attention_has_the_bits_of_one_machine(Communicator& communicator) {
  expect_attention(communicator, {{.pattern = Pattern::parse("causal & lsh(32, 2)")}, false, 700});
}

inline constexpr CommunicatorCase attention_cases_of_ranks[] = {
    {"AttentionIsThatOfOneMachine", attention_is_that_of_one_machine},
    {"StrictAttentionHasTheBitsOfOneMachine", strict_attention_has_the_bits_of_one_machine},
    {"HashedAttentionHasTheBitsOfOneMachine", hashed_attention_has_the_bits_of_one_machine},
};

/// Every case there is, for test suites that run them all.
inline std::vector<CommunicatorCase> all_cases() {
  std::vector<CommunicatorCase> cases = communicator_cases();
  cases.insert(cases.end(), std::begin(attention_cases_of_ranks),
               std::end(attention_cases_of_ranks));
  return cases;
}

}  // namespace rapt::test
