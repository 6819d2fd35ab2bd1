#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "support/engine.h"
#include "support/memory.h"
#include "support/truth/bound.h"
#include "support/truth/definition.h"

// No call reads or writes outside its operands: protected pages next to every operand, canaries in
// every gap of an output.
namespace rapt::test {
namespace {

/// Row-major numbers that end (or begin) at a page whose touch ends the process.
class GuardedOperand {
 public:
  GuardedOperand(Shape shape, Guarded::Side side, std::uint64_t seed)
      : memory_(std::make_unique<Guarded>(shape.elements(), side)), shape_(shape) {
    const auto numbers = normals(shape.elements(), seed);
    std::copy(numbers.begin(), numbers.end(), memory_->numbers().begin());
  }
  operator View() const { return View(memory_->numbers(), shape_); }
  operator AnyView() const { return View(*this); }
  MutableView out() const { return MutableView(memory_->numbers(), shape_); }
  std::span<float> numbers() const { return memory_->numbers(); }

 private:
  std::unique_ptr<Guarded> memory_;
  Shape shape_;
};

struct Sizes {
  Index heads, queries, keys, dim, value_dim;
};

void expect_stays_inside(const Sizes& s, Guarded::Side side, const Context& context) {
  const GuardedOperand q({1, s.heads, s.queries, s.dim}, side, 1);
  const GuardedOperand k({1, 1, s.keys, s.dim}, side, 2);
  const GuardedOperand v({1, 1, s.keys, s.value_dim}, side, 3);
  const GuardedOperand dout({1, s.heads, s.queries, s.value_dim}, side, 4);
  const GuardedOperand out({1, s.heads, s.queries, s.value_dim}, side, 5);
  const GuardedOperand table({32, s.heads}, side, 6), shaw({5, s.dim}, side, 7);
  const GuardedOperand dense({1, 1, s.queries, s.keys}, side, 8);
  for (const Bias& bias : {Bias{}, t5_bias(table) + relative_keys(shaw) + dense_bias(dense)}) {
    const Attention how{.pattern = causal(), .bias = bias, .stats = true};
    for (float& number : out.numbers()) number = NAN;
    const Attended got = attend_into(out.out(), q, k, v, how, context);
    const Problem p = problem(q, k, v, how);
    EXPECT_WITHIN_BOUND(out, got, define(p), "guarded on " + context.isa());
    const Gradients gradients = attend_backward(dout, q, k, v, {out, got.rows}, how, context);
    EXPECT_WITHIN_BOUND(gradients, define_gradients(p, doubles(dout)),
                        "guarded on " + context.isa());
  }
}

TEST(Guard, OperandsAndOutputsMayTouchProtectedPages) {
  for (const Sizes& sizes : {Sizes{1, 1, 1, 1, 1},
                             {2, 3, 5, 3, 7},
                             {1, 64, 64, 64, 64},
                             {2, 65, 67, 17, 33},
                             {1, 1, 129, 65, 15},
                             {4, 1, 63, 8, 1},
                             {1, 130, 2, 31, 63},
                             {3, 17, 100, 100, 96}})
    for (const Context& context : every_isa()) {
      expect_stays_inside(sizes, Guarded::Side::end, context);
      expect_stays_inside(sizes, Guarded::Side::begin, context);
    }
}

TEST(Guard, StridedOperandsAreReadOnlyInTheirRows) {
  // [tokens, heads, dim] with the next head's columns behind each row: the very last row ends at a
  // protected page, and the columns of other heads are NaN.
  for (const Context& context : every_isa())
    for (const Index dim : {1, 7, 16, 65}) {
      const Index tokens = 70, heads = 3;
      std::vector<std::unique_ptr<Guarded>> memory;
      std::vector<View> views;
      for (std::uint64_t seed = 0; seed < 4; ++seed) {
        memory.push_back(std::make_unique<Guarded>(tokens * heads * dim, Guarded::Side::end));
        float* last_head = memory.back()->numbers().data() + (heads - 1) * dim;
        Random random(seed);
        for (Index token = 0; token < tokens; ++token)
          for (Index column = 0; column < dim; ++column)
            last_head[token * heads * dim + column] = static_cast<float>(random.normal());
        views.push_back(View::unchecked(last_head, {1, 1, tokens, dim}, {0, 0, heads * dim, 1}));
      }
      const Answer got = run(views[3], views[0], views[1], views[2], {}, context);
      const Problem p = problem(views[0], views[1], views[2]);
      EXPECT_WITHIN_BOUND(got.forward, define(p), "strided on " + context.isa());
      EXPECT_WITHIN_BOUND(got.backward, define_gradients(p, doubles(views[3])),
                          "strided on " + context.isa());
    }
}

TEST(Guard, AttendIntoWritesItsElementsAndNothingElse) {
  const float canary = -12345.678f;
  for (const Context& context : every_isa())
    for (const Index value_dim : {1, 5, 16, 33, 64}) {
      const Small small({2, 3, 70, 16}, {2, 3, 90, 16});
      const Tensor v = random_tensor({2, 3, 90, value_dim}, 3);
      const Index row = 3 * value_dim + 5, item = 70 * row + 11, margin = 256;
      std::vector<float> memory(static_cast<std::size_t>(2 * item + 2 * margin), canary);
      const MutableView out = MutableView::unchecked(memory.data() + margin, {2, 3, 70, value_dim},
                                                     {item, value_dim, row, 1});
      for (Index n = 0; n < 2 * 3 * 70 * value_dim; ++n)  // stale numbers must not survive
        out.row(n / value_dim / 210, n / value_dim / 70 % 3, n / value_dim % 70)[n % value_dim] =
            NAN;
      const Attended got = attend_into(out, small.q, small.k, v, {.pattern = causal()}, context);
      EXPECT_TRUE(got.out.empty());
      const Attended want = attend(small.q, small.k, v, {.pattern = causal()}, context);
      const Doubles numbers = doubles(out);
      EXPECT_SAME_BITS("out", std::vector<float>(numbers.begin(), numbers.end()),
                       want.out.numbers());
      for (Index n = 0; n < 2 * 3 * 70 * value_dim; ++n)
        out.row(n / value_dim / 210, n / value_dim / 70 % 3, n / value_dim % 70)[n % value_dim] =
            canary;
      for (const float number : memory) ASSERT_EQ(number, canary) << context.isa();
    }
}

TEST(Guard, OperandsAreNotWritten) {
  Small small({1, 2, 70, 16}, {1, 2, 90, 16});
  const Tensor table = random_tensor({32, 2}, 4), before = table.clone();
  small.how.bias = t5_bias(table);
  const Tensor q = small.q.clone(), k = small.k.clone(), v = small.v.clone();
  const Tensor dout = small.dout.clone();
  for (const Context& context : every_isa()) small.answer(context);
  EXPECT_SAME_BITS("q", small.q.numbers(), q.numbers());
  EXPECT_SAME_BITS("k", small.k.numbers(), k.numbers());
  EXPECT_SAME_BITS("v", small.v.numbers(), v.numbers());
  EXPECT_SAME_BITS("dout", small.dout.numbers(), dout.numbers());
  EXPECT_SAME_BITS("table", table.numbers(), before.numbers());
}

}  // namespace
}  // namespace rapt::test
