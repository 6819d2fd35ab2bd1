#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/context.h"
#include "nn/matmul/gemm.h"
#include "nn/matmul/packed_matrix.h"
#include "rapt/nn/functional.h"
#include "support/engine.h"
#include "support/truth/bound.h"
#include "support/truth/matmul_bound.h"

namespace rapt::test {
using namespace detail;
namespace {

/// How many of a product's operands have numbers that bf16 does not have.
int rounded_operands(const Tensor& a, const Tensor& b) {
  return (a.type() == Type::bf16 ? 0 : 1) + (b.type() == Type::bf16 ? 0 : 1);
}

enum class Lying { rows, columns };

/// A tensor [lines, length] as a matrix whose rows, or whose columns, are its lines.
Matrix matrix_of(const Tensor& x, Lying lying) {
  const Matrix rows{x.memory(), x.type(), x.shape()[0], x.shape()[1], x.shape()[1], 1};
  return lying == Lying::rows ? rows : rows.transposed();
}

struct ProductCase {
  Index rows, depth, columns;
  Lying a = Lying::rows, b = Lying::columns;
  Type a_type = Type::f32, b_type = Type::bf16;
  bool add = false, bias = false;
  float shift = 0;  // of all numbers: a mean that is not 0 makes sums of one sign
  std::uint64_t seed = 1;

  std::string text() const {
    return std::to_string(rows) + " x " + std::to_string(depth) + " x " + std::to_string(columns) +
           ", seed " + std::to_string(seed);
  }
};

struct MatrixProblem {
  explicit MatrixProblem(const ProductCase& given)
      : c(given),
        a(operand(c.rows, c.a, c.a_type, c.seed)),
        b(operand(c.columns, c.b == Lying::columns ? Lying::rows : Lying::columns, c.b_type,
                  c.seed + 1)),
        before(random_tensor({c.rows, c.columns}, c.seed + 2)),
        bias(random_tensor({c.columns}, c.seed + 3)) {}

  /// `lines` along the depth, contiguous or interleaved.
  Tensor operand(Index lines, Lying lying, Type type, std::uint64_t seed) const {
    Tensor x =
        random_tensor(lying == Lying::rows ? Shape{lines, c.depth} : Shape{c.depth, lines}, seed);
    for (float& number : x.numbers()) number += c.shift;
    return type == Type::f32 ? std::move(x) : x.converted(type);
  }

  Tensor product(const Context& context) const {
    Tensor out = before.clone();
    multiply_bf16(matrix_of(a, c.a), matrix_of(b, c.b),
                  {.data = out.data(),
                   .stride = c.columns,
                   .add = c.add,
                   .bias = c.bias ? bias.data() : nullptr},
                  context);
    return out;
  }

  void expect_within_bound(const Tensor& got, const std::string& where) const {
    const Tensor left = a.converted(Type::f32), right = b.converted(Type::f32);
    const Matrix x = matrix_of(left, c.a), y = matrix_of(right, c.b);
    const double bound = multiply_bf16_error(c.depth, rounded_operands(a, b));
    for (Index r = 0; r < c.rows; ++r)
      for (Index column = 0; column < c.columns; ++column) {
        double want = c.add    ? static_cast<double>(before.data()[r * c.columns + column])
                      : c.bias ? static_cast<double>(bias.data()[column])
                               : 0;
        double size = std::abs(want);
        for (Index k = 0; k < c.depth; ++k) {
          const double term =
              static_cast<double>(left.data()[r * x.row_step + k * x.column_step]) *
              static_cast<double>(right.data()[k * y.row_step + column * y.column_step]);
          want += term;
          size += std::abs(term);
        }
        ASSERT_NEAR(got.data()[r * c.columns + column], want, bound * size)
            << c.text() << " at " << r << ", " << column << " on " << where;
      }
  }

  ProductCase c;
  Tensor a, b, before, bias;
};

void expect_within_bound(const ProductCase& c) {
  const MatrixProblem problem(c);
  for (const Context& context : every_bf16_isa())
    problem.expect_within_bound(problem.product(context), context.isa());
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.type() == b.type() &&
         std::memcmp(a.memory(), b.memory(),
                     static_cast<std::size_t>(a.elements()) * size_of(a.type())) == 0;
}

TEST(Bf16Matrix, EdgesAreWithinTheBoundOnEveryEngine) {
  std::uint64_t seed = 100;
  for (const Index rows : {1, 5, 17, 33})
    for (const Index depth : {1, 2, 31, 33, 257})
      for (const Index columns : {1, 16, 23, 49, 65}) {
        ProductCase c{.rows = rows, .depth = depth, .columns = columns, .seed = ++seed};
        c.a = seed % 2 == 0 ? Lying::rows : Lying::columns;
        c.b = seed / 2 % 2 == 0 ? Lying::rows : Lying::columns;
        c.a_type = seed % 5 == 0 ? Type::bf16 : seed % 5 == 1 ? Type::f16 : Type::f32;
        c.b_type = seed % 3 == 0 ? Type::f32 : Type::bf16;
        c.add = seed % 7 < 3;
        c.bias = !c.add && seed % 7 < 5;
        expect_within_bound(c);
      }
}

// Operands that are bf16 already lose nothing but what f32 sums do.
TEST(Bf16Matrix, SumsOfOneSignAreWithinTheBoundOfF32) {
  for (const Index depth : {256, 1000, 4100})
    expect_within_bound(
        {.rows = 20, .depth = depth, .columns = 70, .a_type = Type::bf16, .shift = 3});
}

TEST(Bf16Matrix, NumbersAreRoundedToTheNearestAndTiesToEven) {
  const Index rows = 32, depth = 64;
  Tensor a = random_tensor({rows, depth}, 1);
  for (Index i = 0; i < a.elements(); i += 3)  // halfway between two neighbours
    a.data()[i] = static_cast<float>(static_cast<Bf16>(a.data()[i])) * (1 + 0x1p-8F);
  Tensor unit({depth, depth});
  for (Index k = 0; k < depth; ++k) unit.data()[k * depth + k] = 1;
  const Tensor want = a.converted(Type::bf16).converted(Type::f32);
  for (const Context& context : every_bf16_isa())
    for (const bool turned : {false, true}) {
      Tensor got({rows, depth});
      const Matrix left = matrix_of(a, Lying::rows), one = matrix_of(unit, Lying::columns);
      // As a left operand, and transposed as a right one.
      Tensor back({depth, rows});
      if (turned) {
        multiply_bf16(one, left.transposed(), {.data = back.data(), .stride = rows}, context);
        for (Index r = 0; r < rows; ++r)
          for (Index k = 0; k < depth; ++k) got.data()[r * depth + k] = back.data()[k * rows + r];
      } else {
        multiply_bf16(left, one, {.data = got.data(), .stride = depth}, context);
      }
      EXPECT_TRUE(same_bits(got, want)) << turned << " on " << context.isa();
    }
}

TEST(Bf16Matrix, SameBitsForAnyNumberOfThreads) {
  for (const ProductCase& c :
       {ProductCase{.rows = 300, .depth = 270, .columns = 310, .add = true},
        {.rows = 61, .depth = 1030, .columns = 500, .b = Lying::rows, .bias = true},
        {.rows = 700, .depth = 50, .columns = 90, .a = Lying::columns, .b = Lying::rows}}) {
    const MatrixProblem problem(c);
    for (const Context& isa : every_bf16_isa()) {
      const Tensor one = problem.product(Context(1, isa.isa()));
      for (const Index threads : {2, 3, 7})
        EXPECT_TRUE(same_bits(problem.product(Context(threads, isa.isa())), one))
            << c.text() << " on " << isa.isa() << " with " << threads;
    }
  }
}

TEST(Bf16Matrix, NothingIsRoundedWhereBf16IsNotMultiplied) {
  const MatrixProblem problem({.rows = 40, .depth = 70, .columns = 50});
  for (const Context& context : every_isa()) {
    Tensor want({40, 50});
    multiply(matrix_of(problem.a, Lying::rows), matrix_of(problem.b, Lying::columns),
             {.data = want.data(), .stride = 50}, context);
    EXPECT_TRUE(same_bits(problem.product(context), want)) << context.isa();
  }
}

TEST(Bf16Matrix, InfinityAndNanGoWhereTheyBelong) {
  Tensor a = random_tensor({20, 40}, 1), b = random_tensor({30, 40}, 2);
  a.data()[1 * 40 + 7] = std::numeric_limits<float>::quiet_NaN();
  b.data()[5 * 40 + 9] = std::numeric_limits<float>::infinity();
  for (const Context& context : every_bf16_isa()) {
    Tensor got({20, 30});
    multiply_bf16(matrix_of(a, Lying::rows), matrix_of(b, Lying::columns),
                  {.data = got.data(), .stride = 30}, context);
    for (Index r = 0; r < 20; ++r)
      for (Index c = 0; c < 30; ++c) {
        EXPECT_EQ(std::isnan(got.data()[r * 30 + c]), r == 1) << r << ", " << c;
        EXPECT_EQ(std::isinf(got.data()[r * 30 + c]), r != 1 && c == 5) << r << ", " << c;
      }
  }
}

Tensor product(const Tensor& x, const PackedMatrix& weight, const Context& context) {
  Tensor y = Tensor::uninitialized({x.shape()[0], weight.out()});
  multiply(matrix_of(x, Lying::rows), weight, {.data = y.data(), .stride = weight.out()}, context);
  return y;
}

TEST(Bf16Matrix, PackedWeightsAreWithinTheBoundAndExpandToWhatTheyWere) {
  for (const Context& context : every_bf16_isa())
    for (const Index rows : {1, 2, 3, 5, 8, 9, 70})
      for (const Index depth : {1, 33, 256, 300})
        for (const Index columns : {1, 16, 49, 200}) {
          const MatrixProblem problem({.rows = rows, .depth = depth, .columns = columns});
          const PackedMatrix packed(problem.b, context);
          problem.expect_within_bound(product(problem.a, packed, context), context.isa());
          EXPECT_TRUE(same_bits(packed.expanded(), problem.b)) << problem.c.text();
        }
}

TEST(Bf16Matrix, ARowOfAPackedProductHasTheSameBitsInAnyCompanyAndForAnyThreads) {
  const Tensor x = random_tensor({600, 300}, 1);
  const Tensor weight = random_tensor({250, 300}, 2).converted(Type::bf16);
  for (const Context& isa : every_bf16_isa()) {
    const PackedMatrix packed(weight, isa);
    const Tensor all = product(x, packed, Context(1, isa.isa()));
    for (const Index threads : {2, 3, 7})
      EXPECT_TRUE(same_bits(product(x, packed, Context(threads, isa.isa())), all)) << threads;
    for (const Index rows : {1, 2, 3, 4, 7, 77}) {
      Tensor some({rows, 300}), want({rows, 250});
      std::copy_n(x.data(), some.elements(), some.data());
      std::copy_n(all.data(), want.elements(), want.data());
      EXPECT_TRUE(same_bits(product(some, packed, isa), want)) << rows << " on " << isa.isa();
    }
  }
}

TEST(Bf16Matrix, APackedWeightRunsOnOtherInstructionSets) {
  const MatrixProblem problem({.rows = 20, .depth = 40, .columns = 30});
  const PackedMatrix packed(problem.b, every_bf16_isa().front());
  for (const Context& context : every_isa())
    problem.expect_within_bound(product(problem.a, packed, context), context.isa());
}

TEST(Bf16Matrix, ParametersComeBackAsTheyWereOnEveryIsa) {
  std::vector<Context> all = every_isa();
  all.insert(all.end(), every_bf16_isa().begin(), every_bf16_isa().end());
  for (const Context& context : all) {
    Parameter weight{.name = "w", .value = random_tensor({30, 20}, 1).converted(Type::bf16)};
    const Tensor before = weight.value.clone();
    weight.pack(context);
    EXPECT_NE(weight.packed, nullptr) << context.isa();
    EXPECT_EQ(weight.type(), Type::bf16) << context.isa();
    weight.unpack();
    EXPECT_TRUE(same_bits(weight.value, before)) << context.isa();
  }
}

// All three products of a layer whose weight is rounded are products of bf16.
TEST(Bf16Matrix, GradientsAreWithinTheBound) {
  const Index rows = 40, in = 70, out = 50;
  for (const Context& context : every_bf16_isa()) {
    Parameter weight{.name = "w", .value = random_tensor({out, in}, 1)};
    weight.rounded = weight.value.converted(Type::bf16);
    const Tensor x = random_tensor({rows, in}, 2), dy = random_tensor({rows, out}, 3);
    Tape tape(Tape::Mode::train, context);
    const Variable input = tape.input(x.clone(), true);
    tape.backward(linear(tape, input, weight), dy.clone());
    const auto expect = [&](const Tensor& got, double bound, const auto& term, Index terms) {
      for (Index i = 0; i < got.shape()[0]; ++i)
        for (Index j = 0; j < got.shape()[1]; ++j) {
          double want = 0, size = 0;
          for (Index k = 0; k < terms; ++k) {
            want += term(i, j, k);
            size += std::abs(term(i, j, k));
          }
          ASSERT_NEAR(got.data()[i * got.shape()[1] + j], want, bound * size) << context.isa();
        }
    };
    const Tensor used = weight.rounded.converted(Type::f32);
    const auto number = [](const Tensor& t, Index r, Index c) {
      return static_cast<double>(t.data()[r * t.shape()[1] + c]);
    };
    expect(
        weight.gradient, multiply_bf16_error(rows, 2),
        [&](Index o, Index i, Index r) { return number(dy, r, o) * number(x, r, i); }, rows);
    expect(
        input.gradient(), multiply_bf16_error(out, 1),
        [&](Index r, Index i, Index o) { return number(dy, r, o) * number(used, o, i); }, out);
  }
}

}  // namespace
}  // namespace rapt::test
