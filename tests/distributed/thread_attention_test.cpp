#include <gtest/gtest.h>

#include "rapt/lsh.h"
#include "support/cases.h"
#include "support/ranks.h"
#include "support/refused.h"
#include "support/truth/bound.h"
#include "support/truth/definition.h"

namespace rapt::test {
namespace {

using namespace distributed;

const Context& one_thread() {
  static const Context context(1);
  return context;
}

/// Placements that have nothing in common but the number of ranks.
Exchange exchange_of(const Operands& o, Index ranks, const ExchangeOptions& options) {
  const Index granule = options.strict ? 8 : 1;
  const auto scattered = [&](Index tokens) {
    std::vector<std::int32_t> owners;
    for (Index tile = 0; tile < (tokens + 63) / 64; ++tile)
      owners.push_back(static_cast<std::int32_t>(tile / granule * 7 % ranks));
    return Placement(tokens, ranks, owners);
  };
  const Placement queries =
      granule == 1 ? Placement::zigzag(o.q.tokens(), ranks) : scattered(o.q.tokens());
  return {o.how.pattern, queries, scattered(o.k.tokens()), options};
}

Answer answer_of(const Operands& o, Index ranks, const ExchangeOptions& options) {
  return run_over_ranks({o.q, o.k, o.v, o.dout, o.how}, exchange_of(o, ranks, options),
                        one_thread());
}

constexpr Index attention_rank_counts[] = {2, 3, 1, 4, 5, 8};

std::string where(const Case& c, Index ranks) {
  return c.repro() + " on " + std::to_string(ranks) + " ranks";
}

TEST(ThreadRanksAttention, IsWithinTheBoundOfTheDefinition) {
  std::size_t number = 0;
  for (const Case& c : attention_cases()) {
    const Operands o(c);
    const Problem p = problem(o.q, o.k, o.v, o.how);
    const Index ranks = attention_rank_counts[number++ % std::size(attention_rank_counts)];
    const Answer got = answer_of(o, ranks, {});
    EXPECT_WITHIN_BOUND(got.forward, define(p), where(c, ranks));
    EXPECT_WITHIN_BOUND(got.backward, define_gradients(p, doubles(o.dout)), where(c, ranks));
    if (testing::Test::HasFailure()) return;
  }
}

/// Gradients that a strict exchange does not have.
bool sums_over_ranks(const Attention& how) {
  if (how.bias.keys || !how.relative_values.empty()) return true;
  if (!how.bias.dense) return false;
  const View& dense = how.bias.dense->values;
  return dense.size(2) == 1 || dense.size(3) == 1;
}

TEST(ThreadRanksAttention, HasTheBitsOfOneMachineIfStrict) {
  std::size_t number = 3;
  for (const Case& c : attention_cases()) {
    Operands o(c);
    const Index ranks = attention_rank_counts[number++ % std::size(attention_rank_counts)];
    if (sums_over_ranks(o.how)) {
      expect_refused([&] { answer_of(o, std::max<Index>(2, ranks), {.strict = true}); },
                     {"sum over ranks", "not strict"});
      continue;
    }
    const Answer got = answer_of(o, ranks, {.strict = true});
    o.how.strict = true;
    const Answer want = run(o, one_thread());
    EXPECT_SAME_BITS(got.forward, want.forward) << where(c, ranks);
    EXPECT_SAME_BITS(got.backward, want.backward) << where(c, ranks);
    if (testing::Test::HasFailure()) return;
  }
}

Tensor as_bf16(const View& view) {
  Tensor copy(view.shape());
  const AnyMutableView to = copy;
  for (Index item = 0; item < view.batch(); ++item)
    for (Index head = 0; head < view.heads(); ++head)
      for (Index i = 0; i < view.tokens(); ++i)
        std::copy_n(view.row(item, head, i), view.dim(),
                    static_cast<float*>(to.row(item, head, i)));
  return copy.converted(Type::bf16);
}

std::string different(const Tensor& a, const Tensor& b) {
  const Tensor x = a.converted(Type::f32), y = b.converted(Type::f32);
  return different_bits("a 16-bit result", x.numbers(), y.numbers());
}

TEST(ThreadRanksAttention, HasTheBitsOfOneMachineInBf16) {
  for (const char* line :
       {"queries=700; keys=700; heads=4; kv_heads=2; dim=64; value_dim=64; pattern=causal",
        "queries=1500; keys=1500; heads=2; kv_heads=2; dim=32; value_dim=48; bias=alibi; "
        "pattern=window(100, 100) | tokens({0, 900})",
        "queries=300; keys=900; heads=2; kv_heads=1; dim=64; value_dim=64; dropout=0.25"}) {
    const Case c = parse_case(line);
    const Operands o(c);
    const Tensor q = as_bf16(o.q), k = as_bf16(o.k), v = as_bf16(o.v), dout = as_bf16(o.dout);
    Attention how = o.how;
    how.strict = true;
    for (const Context& context : every_bf16_isa()) {
      const Context one(1, context.isa());
      const Attended forward = attend(q, k, v, how, one);
      const Gradients backward = attend_backward(dout, q, k, v, forward, how, one);
      for (const Index ranks : {1, 2, 3, 5}) {
        const Answer got =
            run_over_ranks({q, k, v, dout, o.how}, exchange_of(o, ranks, {.strict = true}), one);
        EXPECT_SILENT(different(got.forward.out, forward.out)) << where(c, ranks);
        EXPECT_SILENT(different(got.backward.dq, backward.dq)) << where(c, ranks);
        EXPECT_SILENT(different(got.backward.dk, backward.dk)) << where(c, ranks);
        EXPECT_SILENT(different(got.backward.dv, backward.dv)) << where(c, ranks);
      }
    }
  }
}

/// Whole heads travel, also where there are more ranks than heads.
TEST(ThreadRanksAttention, HasTheBitsOfOneMachineUnderLsh) {
  const Tensor qk = random_tensor({2, 3, 1000, 24}, 1), v = random_tensor({2, 3, 1000, 16}, 2);
  const Tensor k = random_tensor({2, 3, 1000, 24}, 3), dout = random_tensor({2, 3, 1000, 16}, 4);
  for (const char* text : {"lsh(64, 4, {8}, 7)", "causal & lsh(32, 2)",
                           "causal & lsh(64, 2, {4, 4}, 3, 1, 1, separate, once)"}) {
    const Attention how{.pattern = Pattern::parse(text), .dropout = {0.25, 5}};
    const bool separate = lsh_part(how.pattern)->keys == Lsh::Keys::separate;
    const AnyView keys = separate ? k : qk;
    const Attended forward = attend(qk, keys, v, how, one_thread());
    const Gradients backward = attend_backward(dout, qk, keys, v, forward, how, one_thread());
    for (const Index ranks : attention_rank_counts) {
      const Answer got = run_over_ranks(
          {qk, keys, v, dout, how}, {how.pattern, Placement::zigzag(1000, ranks)}, one_thread());
      EXPECT_SAME_BITS(got.forward, forward) << text << " on " << ranks << " ranks";
      EXPECT_SAME_BITS(got.backward, backward) << text << " on " << ranks << " ranks";
    }
  }
}

}  // namespace
}  // namespace rapt::test
