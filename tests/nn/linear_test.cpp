#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "kernels/context.h"
#include "nn/matmul/gemm.h"
#include "rapt/nn/functional.h"
#include "support/engine.h"
#include "support/refused.h"
#include "support/truth/bound.h"
#include "support/truth/matmul_bound.h"

namespace rapt::test {
using namespace detail;
namespace {

/// sum(dy * (x · weight' + bias)), straight from the definition in double, and the sum of the sizes
/// of all its terms.
struct Loss {
  double value = 0, size = 0;
};

Loss loss_of(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& dy) {
  const Index rows = x.shape()[0], in = x.shape()[1], out = weight.shape()[0];
  Loss loss;
  const auto add = [&](double term) {
    loss.value += term;
    loss.size += std::abs(term);
  };
  for (Index r = 0; r < rows; ++r)
    for (Index o = 0; o < out; ++o) {
      const double g = static_cast<double>(dy.data()[r * out + o]);
      if (!bias.empty()) add(g * static_cast<double>(bias.data()[o]));
      for (Index i = 0; i < in; ++i)
        add(g * static_cast<double>(x.data()[r * in + i]) *
            static_cast<double>(weight.data()[o * in + i]));
    }
  return loss;
}

/// The change of a loss with one number of `at`, by a central difference. The loss is linear in
/// every number, so a step of any size is exact but for rounding in double.
Loss slope(const std::function<Loss()>& loss, float& at) {
  const float middle = at;
  at = middle + 1;
  const double above = static_cast<double>(at);
  const Loss high = loss();
  at = middle - 1;
  const double below = static_cast<double>(at);
  const Loss low = loss();
  at = middle;
  return {(high.value - low.value) / (above - below), high.size + low.size};
}

struct Layer {
  Layer(Index rows, Index in, Index out, std::uint64_t seed)
      : x(random_tensor({rows, in}, seed)),
        weight{.name = "weight", .value = random_tensor({out, in}, seed + 1)},
        bias{.name = "bias", .value = random_tensor({out}, seed + 2)},
        dy(random_tensor({rows, out}, seed + 3)) {}

  Tensor x;
  Parameter weight, bias;
  Tensor dy;
};

void expect_slopes(const Tensor& gradient, Tensor& of, const std::function<Loss()>& loss,
                   const std::string& where) {
  ASSERT_EQ(gradient.shape(), of.shape()) << where;
  const Index step = std::max<Index>(1, of.elements() / 17);
  for (Index i = 0; i < of.elements(); i += step) {
    const Loss want = slope(loss, of.data()[i]);
    EXPECT_NEAR(gradient.data()[i], want.value, 64 * 0x1p-24 * want.size) << where << " at " << i;
  }
}

TEST(Linear, GradientsAreTheSlopesOfTheDefinition) {
  for (const Context& context : every_isa())
    for (const auto& [rows, in, out] :
         {std::tuple<Index, Index, Index>{1, 1, 1}, {2, 9, 5}, {13, 7, 30}, {40, 33, 26}}) {
      Layer layer(rows, in, out, static_cast<std::uint64_t>(rows));
      Tape tape(Tape::Mode::train, context);
      const Variable x = tape.input(layer.x.clone(), true);
      const Variable y = linear(tape, x, layer.weight, &layer.bias);
      tape.backward(y, layer.dy.clone());
      const auto loss = [&] {
        return loss_of(layer.x, layer.weight.value, layer.bias.value, layer.dy);
      };
      expect_slopes(x.gradient(), layer.x, loss, "dx on " + context.isa());
      expect_slopes(layer.weight.gradient, layer.weight.value, loss, "dweight on " + context.isa());
      expect_slopes(layer.bias.gradient, layer.bias.value, loss, "dbias on " + context.isa());
    }
}

TEST(Linear, ForwardIsTheDefinition) {
  for (const Index rows : {3, 21}) {
    const Layer layer(rows, 37, 29, 5);
    Tape tape(Tape::Mode::forward);
    Parameter weight{.name = "w", .value = layer.weight.value.clone()};
    Parameter bias{.name = "b", .value = layer.bias.value.clone()};
    for (Parameter* shift : {static_cast<Parameter*>(nullptr), &bias}) {
      const Variable y = linear(tape, tape.input(layer.x.clone()), weight, shift);
      ASSERT_EQ(y.shape(), (Shape{rows, 29}));
      EXPECT_FALSE(y.tracked());
      for (Index r = 0; r < rows; ++r)
        for (Index o = 0; o < 29; ++o) {
          double want = shift == nullptr ? 0 : static_cast<double>(bias.value.data()[o]);
          double size = std::abs(want);
          for (Index i = 0; i < 37; ++i) {
            const double term = static_cast<double>(layer.x.data()[r * 37 + i]) *
                                static_cast<double>(weight.value.data()[o * 37 + i]);
            want += term;
            size += std::abs(term);
          }
          EXPECT_NEAR(y.value().data()[r * 29 + o], want, multiply_error(37) * size);
        }
    }
  }
}

TEST(Linear, GradientsAddUp) {
  Layer layer(12, 10, 11, 3);
  const auto backward = [&] {
    Tape tape;
    const Variable y = linear(tape, tape.input(layer.x.clone()), layer.weight, &layer.bias);
    tape.backward(y, layer.dy.clone());
  };
  backward();
  const Tensor dweight = layer.weight.gradient.clone(), dbias = layer.bias.gradient.clone();
  backward();
  for (Index i = 0; i < dweight.elements(); ++i)
    EXPECT_FLOAT_EQ(layer.weight.gradient.data()[i], 2 * dweight.data()[i]);
  for (Index i = 0; i < dbias.elements(); ++i)
    EXPECT_FLOAT_EQ(layer.bias.gradient.data()[i], 2 * dbias.data()[i]);
}

TEST(Linear, SameBitsForAnyNumberOfThreads) {
  std::vector<Tensor> first;
  for (const Index threads : {1, 2, 3, 7}) {
    Layer layer(130, 140, 150, 9);
    Tape tape(Tape::Mode::train, Context(threads));
    const Variable x = tape.input(layer.x.clone(), true);
    const Variable y = linear(tape, x, layer.weight, &layer.bias);
    tape.backward(y, layer.dy.clone());
    const Tensor* results[] = {&y.value(), &x.gradient(), &layer.weight.gradient,
                               &layer.bias.gradient};
    for (std::size_t i = 0; i < 4; ++i) {
      if (threads == 1) {
        first.push_back(results[i]->clone());
      } else {
        EXPECT_SILENT(
            different_bits("part " + std::to_string(i), results[i]->numbers(), first[i].numbers()))
            << threads << " threads";
      }
    }
  }
}

TEST(Linear, AnInputThatIsNotTrackedGetsNoGradientAndNoRowsAreFine) {
  Layer layer(0, 6, 4, 1);
  Tape tape;
  const Variable x = tape.input(layer.x.clone());
  const Variable y = linear(tape, x, layer.weight, &layer.bias);
  EXPECT_EQ(y.shape(), (Shape{0, 4}));
  tape.backward(y, Tensor({0, 4}));
  EXPECT_FALSE(x.tracked());
  for (const float number : layer.weight.gradient_or_zeros().numbers()) EXPECT_EQ(number, 0);
}

// Rows times bf16 are another product where bf16 is multiplied: see bf16_matrix_test.cpp.
TEST(Linear, NarrowWeightsAreReadAsTheyAre) {
  for (const Type type : {Type::bf16, Type::f16})
    for (const Index rows : {1, 30}) {
      if (type == Type::bf16 && kernels_of(Context()).has_bf16()) continue;
      const Layer layer(rows, 64, 48, 7);
      Parameter narrow{.name = "w", .value = layer.weight.value.converted(type)};
      Parameter wide{.name = "w", .value = narrow.value.converted(Type::f32)};
      Tape tape(Tape::Mode::forward);
      const Variable x = tape.input(layer.x.clone());
      EXPECT_SILENT(different_bits("y", linear(tape, x, narrow).value().numbers(),
                                   linear(tape, x, wide).value().numbers()));
    }
}

TEST(Linear, RefusesWhatDoesNotFit) {
  Layer layer(3, 6, 4, 1);
  Tape tape;
  const Variable x = tape.input(layer.x.clone());
  Parameter wrong{.name = "w", .value = Tensor({4, 5})};
  expect_refused([&] { linear(tape, x, wrong); }, {"weight has shape [4, 5]", "[out, 6]"});
  Parameter flat{.name = "w", .value = Tensor({6})};
  expect_refused([&] { linear(tape, x, flat); }, {"weight has shape [6]"});
  expect_refused([&] { linear(tape, x, layer.weight, &flat); }, {"bias has shape [6]", "[4]"});
  Parameter narrow{.name = "w", .value = layer.weight.value.converted(Type::bf16)};
  expect_refused([&] { linear(tape, x, narrow); }, {"bf16", "expected f32"});
  const Variable deep = tape.input(Tensor({1, 3, 6}));
  expect_refused([&] { linear(tape, deep, layer.weight); }, {"x has shape [1, 3, 6]"});
  const Variable half = tape.input(layer.x.converted(Type::f16));
  expect_refused([&] { linear(tape, half, layer.weight); }, {"f16", "f32"});
  expect_refused([&] { linear(tape, Variable(), layer.weight); }, {"x is empty"});
}

}  // namespace
}  // namespace rapt::test
