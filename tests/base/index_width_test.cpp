#include <gtest/gtest.h>

#include <type_traits>

#include "support/engine.h"
#include "support/memory.h"
#include "support/truth/bound.h"
#include "support/truth/definition.h"

// Offsets past 2^31 elements, without the memory (numerics.md 1.7).
namespace rapt::test {
namespace {

static_assert(sizeof(Index) == 8 && std::is_signed_v<Index>);
static_assert(std::is_same_v<decltype(View().stride(0)), Index>);
static_assert(std::is_same_v<decltype(Lengths::keys), Index>);

constexpr Index far_stride = (Index{1} << 31) + 64;

/// [batch, heads, tokens, 8] where one axis of size 3 or less has a stride of more than 2^31
/// elements.
class Far {
 public:
  Far(Shape shape, Index far_axis, std::uint64_t seed)
      : shape_(shape), memory_((shape[far_axis] - 1) * far_stride + shape.elements() + 64) {
    strides_ = shape.row_major();
    strides_[far_axis] = far_stride;
    if (!memory_.granted()) return;
    Random random(seed);
    for (Index row = 0; row < shape[0] * shape[1] * shape[2]; ++row)
      for (Index column = 0; column < shape[3]; ++column)
        view().row(row / shape[2] / shape[1], row / shape[2] % shape[1], row % shape[2])[column] =
            static_cast<float>(random.normal());
  }
  bool granted() const { return memory_.granted(); }
  MutableView view() const { return MutableView(memory_.numbers(), shape_, strides_); }

 private:
  Shape shape_, strides_;
  Reserved memory_;
};

TEST(IndexWidth, StridesPastTwoToThe31AreFollowed) {
  for (const Index axis : {0, 1, 2}) {
    const Far q({3, 3, 3, 8}, axis, 1), k({3, 3, 3, 8}, axis, 2), v({3, 3, 3, 8}, axis, 3);
    const Far dout({3, 3, 3, 8}, axis, 4), out({3, 3, 3, 8}, axis, 5);
    if (!q.granted() || !k.granted() || !v.granted() || !dout.granted() || !out.granted())
      GTEST_SKIP() << "this system does not hand out 17 GB of addresses";
    const Problem p = problem(q.view(), k.view(), v.view());
    for (const Context& context : every_isa()) {
      const std::string what = "far axis " + std::to_string(axis) + " on " + context.isa();
      const Attended got = attend_into(out.view(), q.view(), k.view(), v.view(), {}, context);
      EXPECT_WITHIN_BOUND(out.view(), got, define(p), what);
      const Gradients gradients = attend_backward(dout.view(), q.view(), k.view(), v.view(),
                                                  {out.view(), got.rows}, {}, context);
      EXPECT_WITHIN_BOUND(gradients, define_gradients(p, doubles(dout.view())), what);
    }
  }
}

TEST(IndexWidth, ADenseBiasMayHaveLargeStrides) {
  for (const Index axis : {0, 1, 2}) {
    const Far bias({2, 2, 2, 8}, axis, 1);
    if (!bias.granted()) GTEST_SKIP() << "this system does not hand out 9 GB of addresses";
    Small small({2, 2, 2, 4}, {2, 2, 8, 4});
    small.how.bias = dense_bias(bias.view());
    const Problem p = problem(small.q, small.k, small.v, small.how);
    for (const Context& context : every_isa()) {
      const Answer got = small.answer(context);
      EXPECT_WITHIN_BOUND(got.forward, define(p), context.isa());
      EXPECT_WITHIN_BOUND(got.backward, define_gradients(p, doubles(small.dout)), context.isa());
    }
  }
}

void expect_window_within_bound(Index tokens, const std::string& rest) {
  const std::string n = std::to_string(tokens);
  const Case c = parse_case("queries=" + n + "; keys=" + n + "; dim=4; value_dim=4; " + rest);
  const Operands o(c);
  const Problem p = problem(o.q, o.k, o.v, o.how);
  const Defined want = define(p);
  const DefinedGradients want_gradients = define_gradients(p, doubles(o.dout));
  for (const Context& context : every_isa()) {
    const Answer got = run(o, context);
    EXPECT_WITHIN_BOUND(got.forward, want, where(c, context));
    EXPECT_WITHIN_BOUND(got.backward, want_gradients, where(c, context));
  }
}

TEST(IndexWidth, PairsPastTwoToThe32AreCountedRight) {
  expect_window_within_bound(65537, "pattern=window(8, 8)");
  expect_window_within_bound(65537, "pattern=causal & window(8, 0); bias=alibi; dropout=0.1");
}

TEST(SlowIndexWidth, AMillionTokensWithGlobalOnesAreWithinTheBound) {
  expect_window_within_bound(1 << 20, "pattern=window(4, 4) | tokens({0})");
}

}  // namespace
}  // namespace rapt::test
