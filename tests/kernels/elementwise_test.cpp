#include <gtest/gtest.h>

#include <cmath>

#include "nn/elementwise.h"
#include "rapt/nn/functional.h"
#include "support/engine.h"
#include "support/network.h"
#include "support/refused.h"
#include "support/truth/bound.h"

namespace rapt::test {
using namespace detail;
namespace {

TEST(Embed, RowsOfTheTableAndTheirGradients) {
  for (const Index width : {1, 7, 300})
    in_every_context([&](const Context& context) {
      Parameter table = random_parameter("table", {6, width}, 1);
      const std::vector<std::int32_t> ids{3, 0, 3, 5, 3, 0};
      const Tensor dy = random_tensor({6, width}, 2);
      Tape tape(Tape::Mode::train, context);
      const Variable out = embed(tape, table, ids);
      ASSERT_EQ(out.shape(), (Shape{6, width}));
      Tensor want({6, width});
      for (Index i = 0; i < 6; ++i)
        for (Index c = 0; c < width; ++c) {
          const Index id = ids[static_cast<std::size_t>(i)];
          EXPECT_EQ(out.value().data()[i * width + c], table.value.data()[id * width + c]);
          want.data()[id * width + c] += dy.data()[i * width + c];  // in the order of the rows
        }
      tape.backward(out, dy.clone());
      EXPECT_SILENT(different_bits("dtable", table.gradient.numbers(), want.numbers()));
    });
}

TEST(Embed, NoIdsAndRefusals) {
  Parameter table = random_parameter("words", {6, 4}, 1);
  Tape tape;
  EXPECT_EQ(embed(tape, table, {}).shape(), (Shape{0, 4}));
  const std::vector<std::int32_t> high{1, 6}, low{-1};
  expect_refused([&] { embed(tape, table, high); }, {"embed", "id 1 is 6", "words", "6 rows"});
  expect_refused([&] { embed(tape, table, low); }, {"id 0 is -1"});
  Parameter line = random_parameter("line", {6}, 1);
  expect_refused([&] { embed(tape, line, {}); }, {"line", "[6]", "[vocab_size, width]"});
}

TEST(Add, SumsAndPassesTheGradientToBoth) {
  for (const Index count : {1, 5, 8, 100000})
    in_every_context([&](const Context& context) {
      const Tensor a = random_tensor({1, count}, 1), b = random_tensor({1, count}, 2);
      const Tensor dy = random_tensor({1, count}, 3);
      Tape tape(Tape::Mode::train, context);
      const Variable x = tape.input(a.clone(), true), y = tape.input(b.clone(), true);
      const Variable out = add(tape, add(tape, x, y), x);
      for (Index i = 0; i < count; ++i)
        ASSERT_EQ(out.value().data()[i], a.data()[i] + b.data()[i] + a.data()[i]);
      tape.backward(out, dy.clone());
      for (Index i = 0; i < count; ++i) {
        ASSERT_EQ(x.gradient().data()[i], 2 * dy.data()[i]);
        ASSERT_EQ(y.gradient().data()[i], dy.data()[i]);
      }
    });
}

TEST(Add, OneThatIsNotTrackedGetsNothing) {
  for (const bool first : {false, true}) {
    Tape tape;
    const Variable x = tape.input(random_tensor({2, 3}, 1), first);
    const Variable y = tape.input(random_tensor({2, 3}, 2), !first);
    tape.backward(add(tape, x, y), random_tensor({2, 3}, 3));
    EXPECT_EQ((first ? x : y).gradient().data()[4], random_tensor({2, 3}, 3).data()[4]);
    expect_refused([&] { static_cast<void>((first ? y : x).gradient()); }, {"there is none"});
  }
}

TEST(Scale, TimesAFactorForwardAndBack) {
  in_every_context([&](const Context& context) {
    const Tensor a = random_tensor({3, 33333}, 1);
    Tape tape(Tape::Mode::train, context);
    const Variable x = tape.input(a.clone(), true), out = scale(tape, x, -0.1);
    tape.backward(out, a.clone());
    for (Index i = 0; i < a.elements(); ++i) {
      ASSERT_EQ(out.value().data()[i], a.data()[i] * -0.1f);
      ASSERT_EQ(x.gradient().data()[i], a.data()[i] * -0.1f);
    }
  });
}

TEST(Dropout, IsDropForwardAndBackward) {
  const DropoutKey key{.seed = 3, .step = 1, .layer = 2, .site = 4};
  in_every_context([&](const Context& context) {
    const Tensor a = random_tensor({3, 777}, 1), dy = random_tensor({3, 777}, 2);
    Tensor want = a.clone(), dwant = dy.clone();
    drop(want, 0.3, key), drop(dwant, 0.3, key);
    Tape tape(Tape::Mode::train, context);
    const Variable x = tape.input(a.clone(), true), out = dropout(tape, x, 0.3, key);
    EXPECT_SILENT(different_bits("y", out.value().numbers(), want.numbers()));
    tape.backward(out, dy.clone());
    EXPECT_SILENT(different_bits("dx", x.gradient().numbers(), dwant.numbers()));
    EXPECT_EQ(&dropout(tape, x, 0, key).value(), &x.value());
    expect_refused([&] { dropout(tape, x, 1.5, key); }, {"dropout", "rate is 1.5"});
  });
}

TEST(Elementwise, RefusesShapesThatDisagree) {
  Tape tape;
  const Variable x = tape.input(Tensor({2, 3})), y = tape.input(Tensor({3, 2}));
  expect_refused([&] { add(tape, x, y); }, {"add", "[2, 3]", "[3, 2]"});
  expect_refused([&] { add(tape, x, Variable()); }, {"add", "no numbers"});
  expect_refused(
      [&] {
        scale(tape, tape.input(Tensor({2, 3}, Type::bf16)), 2);
      },
      {"scale", "bf16", "expected f32"});
  Tensor to({2, 3});
  expect_refused([&] { add_to(to, Tensor({3}), Context()); }, {"[2, 3]", "[3]"});
}

TEST(Elementwise, NanAndInfinityStayWhereTheyAre) {
  for (const Context& context : every_isa()) {
    Tensor a = random_tensor({2, 21}, 1), b = random_tensor({2, 21}, 2);
    a.data()[3] = std::nanf(""), a.data()[20] = INFINITY, b.data()[40] = -INFINITY;
    Tape tape(Tape::Mode::forward, context);
    const Variable out = add(tape, tape.input(a.clone()), tape.input(b.clone()));
    for (Index i = 0; i < 42; ++i) {
      const float got = out.value().data()[i];
      EXPECT_EQ(std::isnan(got), i == 3);
      EXPECT_EQ(std::isinf(got), i == 20 || i == 40);
    }
  }
}

}  // namespace
}  // namespace rapt::test
