#include "nn/matmul/packed_matrix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/context.h"
#include "rapt/models/transformer.h"
#include "support/engine.h"
#include "support/truth/bound.h"
#include "support/truth/matmul_bound.h"

namespace rapt::test {
using namespace detail;
namespace {

Parameter random_weight(Index out, Index in, std::uint64_t seed = 1) {
  return {.name = "weight", .value = random_tensor({out, in}, seed)};
}

Tensor product(const Tensor& x, const PackedMatrix& weight, const Tensor* bias,
               const Context& context) {
  Tensor y = Tensor::uninitialized({x.shape()[0], weight.out()});
  const Matrix left{x.memory(), Type::f32, x.shape()[0], x.shape()[1], x.shape()[1], 1};
  multiply(left, weight,
           {.data = y.data(), .stride = weight.out(), .bias = bias ? bias->data() : nullptr},
           context);
  return y;
}

void expect_within_bound(const Tensor& x, const Tensor& weight, const Tensor* bias, const Tensor& y,
                         const std::string& where) {
  const Index in = x.shape()[1], out = weight.shape()[0];
  for (Index r = 0; r < x.shape()[0]; ++r)
    for (Index c = 0; c < out; ++c) {
      double want = bias ? static_cast<double>(bias->data()[c]) : 0, size = std::abs(want);
      for (Index k = 0; k < in; ++k) {
        const double term = static_cast<double>(x.data()[r * in + k]) *
                            static_cast<double>(weight.data()[c * in + k]);
        want += term;
        size += std::abs(term);
      }
      ASSERT_NEAR(y.data()[r * out + c], want, multiply_error(in) * size)
          << where << " at " << r << ", " << c;
    }
}

bool same_bits(const float* a, const float* b, Index count) {
  return std::memcmp(a, b, static_cast<std::size_t>(count) * sizeof(float)) == 0;
}

TEST(PackedMatrix, ProductsAreWithinTheBoundOnEveryIsa) {
  std::uint64_t seed = 0;
  for (const Context& context : every_isa())
    for (const Index rows : {1, 2, 3, 5, 9, 70})
      for (const Index in : {1, 17, 256, 300})
        for (const Index out : {1, 8, 25, 49, 200}) {
          const Tensor x = random_tensor({rows, in}, ++seed);
          const Tensor weight = random_tensor({out, in}, ++seed);
          const Tensor bias = random_tensor({out}, ++seed);
          const Tensor* added = seed % 2 == 0 ? &bias : nullptr;
          expect_within_bound(x, weight, added,
                              product(x, PackedMatrix(weight, context), added, context),
                              context.isa());
        }
}

TEST(PackedMatrix, SeveralBlocksOfTheDepthAreWithinTheBound) {
  for (const Context& context : every_isa()) {
    const Tensor x = random_tensor({19, 1000}, 1), weight = random_tensor({100, 1000}, 2);
    const Tensor bias = random_tensor({100}, 3);
    expect_within_bound(x, weight, &bias, product(x, PackedMatrix(weight, context), &bias, context),
                        context.isa());
  }
}

/// Several tasks multiply the same rows: with more threads columns are shared out as well.
TEST(PackedMatrix, RowsThatArePackedForSeveralTasksHaveTheSameBits) {
  for (const std::string& isa : supported_isas())
    for (const Type type : {Type::f32, Type::f16, Type::bf16})
      for (const Index rows : {9, 50, 300}) {
        const Context alone(1, isa);
        if (type == Type::bf16 && !kernels_of(alone).has_bf16()) continue;
        const Tensor x = random_tensor({rows, 900}, 1), bias = random_tensor({700}, 2);
        const PackedMatrix packed(random_tensor({700, 900}, 3).converted(type), alone);
        const Tensor want = product(x, packed, &bias, alone);
        for (const Index threads : {2, 3, 7}) {
          const Tensor got = product(x, packed, &bias, Context(threads, isa));
          EXPECT_TRUE(same_bits(got.data(), want.data(), want.elements()))
              << rows << " rows, " << threads << " threads, " << to_string(type) << " on " << isa;
        }
      }
}

TEST(PackedMatrix, ExpandsToTheNumbersItWasMadeOf) {
  for (const Context& context : every_isa())
    for (const Index out : {1, 24, 25, 333})
      for (const Index in : {1, 256, 257, 600}) {
        const Tensor weight = random_tensor({out, in}, 7);
        EXPECT_TRUE(same_bits(PackedMatrix(weight, context).expanded().data(), weight.data(),
                              weight.elements()))
            << out << " x " << in << " on " << context.isa();
      }
}

TEST(PackedMatrix, OfF16HasTheBitsOfTheSameNumbersInF32AndHalfTheBytes) {
  std::uint64_t seed = 0;
  for (const Context& context : every_isa())
    for (const Index rows : {1, 3, 70})
      for (const Index in : {1, 17, 300, 600})
        for (const Index out : {1, 25, 333}) {
          const Tensor x = random_tensor({rows, in}, ++seed);
          const Tensor narrow = random_tensor({out, in}, ++seed).converted(Type::f16);
          const Tensor wide = narrow.converted(Type::f32), bias = random_tensor({out}, ++seed);
          const PackedMatrix some(narrow, context), all(wide, context);
          EXPECT_EQ(2 * some.bytes(), all.bytes());
          EXPECT_EQ(std::memcmp(some.expanded().memory(), narrow.memory(),
                                static_cast<std::size_t>(narrow.elements()) * sizeof(F16)),
                    0);
          const Tensor got = product(x, some, &bias, context),
                       want = product(x, all, &bias, context);
          EXPECT_TRUE(same_bits(got.data(), want.data(), want.elements()))
              << rows << " x " << in << " x " << out << " on " << context.isa();
        }
}

TEST(PackedMatrix, ARowHasTheSameBitsInAnyCompanyAndForAnyThreads) {
  const Tensor x = random_tensor({600, 300}, 1), weight = random_tensor({250, 300}, 2);
  for (const std::string& isa : supported_isas()) {
    const PackedMatrix packed(weight, Context(1, isa));
    const Tensor all = product(x, packed, nullptr, Context(1, isa));
    for (const Index threads : {2, 3, 7})
      EXPECT_TRUE(same_bits(product(x, packed, nullptr, Context(threads, isa)).data(), all.data(),
                            all.elements()))
          << threads << " threads on " << isa;
    for (const Index rows : {1, 2, 3, 4, 77}) {
      Tensor some({rows, 300});
      std::memcpy(some.data(), x.data(), static_cast<std::size_t>(rows * 300) * sizeof(float));
      EXPECT_TRUE(
          same_bits(product(some, packed, nullptr, Context(2, isa)).data(), all.data(), rows * 250))
          << rows << " rows on " << isa;
    }
  }
}

TEST(PackedMatrix, RunsOnOtherInstructionSetsThanItWasPackedFor) {
  const Tensor x = random_tensor({5, 40}, 1), weight = random_tensor({30, 40}, 2);
  const PackedMatrix packed(weight, every_isa().front());
  for (const Context& context : every_isa())
    expect_within_bound(x, weight, nullptr, product(x, packed, nullptr, context), context.isa());
}

TEST(PackedMatrix, NothingIsWrittenBesideTheResult) {
  const Tensor x = random_tensor({3, 20}, 1);
  const PackedMatrix packed(random_tensor({10, 20}, 2), {});
  std::vector<float> to(3 * 16, 5.0F);
  multiply({x.memory(), Type::f32, 3, 20, 20, 1}, packed, {.data = to.data(), .stride = 16}, {});
  for (std::size_t i = 0; i < to.size(); ++i) EXPECT_EQ(to[i] == 5.0F, i % 16 >= 10) << i;
}

TEST(PackedMatrix, ParametersGiveTheirNumbersBackAndDoNotLearnMeanwhile) {
  Parameter weight = random_weight(30, 20);
  const Tensor before = weight.value.clone();
  weight.pack();
  EXPECT_TRUE(weight.value.empty());
  EXPECT_EQ(weight.shape(), before.shape());
  EXPECT_EQ(weight.type(), Type::f32);
  EXPECT_THROW(weight.pack(), std::invalid_argument);
  EXPECT_THROW(weight.gradient_or_zeros(), std::invalid_argument);
  Tape tape(Tape::Mode::train);
  const Variable x = tape.input(random_tensor({4, 20}, 3));
  EXPECT_THROW(linear(tape, x, weight), std::invalid_argument);
  const std::int32_t id = 0;
  EXPECT_THROW(embed(tape, weight, {&id, 1}), std::invalid_argument);
  weight.unpack();
  weight.unpack();
  EXPECT_TRUE(same_bits(weight.value.data(), before.data(), before.elements()));
  EXPECT_NO_THROW(linear(tape, x, weight));
}

TEST(PackedMatrix, ModelsGiveTheSameRowsWithinRounding) {
  ModelConfig config;
  config.layers = 2;
  config.hidden_size = 48;
  config.tied_embeddings = false;
  Transformer model(config);
  const Tokens tokens = Tokens::one({1, 2, 3, 4, 5});
  Tape tape(Tape::Mode::forward);
  const Tensor before = Tape::release(model.forward(tape, tokens));
  const Tensor logits = model.logits(before);
  model.pack();
  EXPECT_EQ(model.count(), Transformer(config).count());
  const Tensor after = Tape::release(model.forward(tape, tokens));
  for (Index i = 0; i < before.elements(); ++i)
    ASSERT_NEAR(after.data()[i], before.data()[i], 1e-5) << i;
  const Tensor packed_logits = model.logits(before);
  for (Index i = 0; i < logits.elements(); ++i)
    ASSERT_NEAR(packed_logits.data()[i], logits.data()[i], 1e-5) << i;
  Tape train(Tape::Mode::train);
  EXPECT_THROW(model.forward(train, tokens), std::invalid_argument);
  model.unpack();
  const Tensor again = Tape::release(model.forward(tape, tokens));
  EXPECT_TRUE(same_bits(again.data(), before.data(), before.elements()));
}

}  // namespace
}  // namespace rapt::test
