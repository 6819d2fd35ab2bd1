#include "nn/matmul/gemm.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <sstream>
#include <vector>

#include "support/cases.h"
#include "support/engine.h"
#include "support/truth/bound.h"
#include "support/truth/matmul_bound.h"

namespace rapt::test {
using namespace detail;
namespace {

constexpr float gap = std::numeric_limits<float>::quiet_NaN();

/// A random matrix in memory of its own: lines of one step, gaps of NaN between them.
struct Held {
  std::vector<float> numbers;  // as they are after rounding to the type
  std::vector<std::uint16_t> narrow;
  Matrix matrix;

  double at(Index r, Index c) const {
    return static_cast<double>(
        numbers[static_cast<std::size_t>(r * matrix.row_step + c * matrix.column_step)]);
  }
};

enum class Lying { rows, columns };

float rounded(float x, Type type) {
  if (type == Type::bf16) return static_cast<float>(static_cast<Bf16>(x));
  if (type == Type::f16) return static_cast<float>(static_cast<F16>(x));
  return x;
}

template <class Number>
std::uint16_t bits_of(float x) {
  return std::bit_cast<std::uint16_t>(static_cast<Number>(x));
}

Held random_matrix(Index rows, Index columns, Lying lying, Index padding, Type type,
                   std::uint64_t seed, double shift = 0) {
  const Index lines = lying == Lying::rows ? rows : columns;
  const Index length = lying == Lying::rows ? columns : rows;
  const Index step = length + padding;
  Held held;
  Random random(seed);
  for (Index line = 0; line < lines; ++line)
    for (Index i = 0; i < step; ++i) {
      const float x = static_cast<float>(random.normal() + shift);
      held.numbers.push_back(i < length ? rounded(x, type) : gap);
    }
  if (type != Type::f32)
    for (const float x : held.numbers)
      held.narrow.push_back(type == Type::bf16 ? bits_of<Bf16>(x) : bits_of<F16>(x));
  held.matrix = {.data = type == Type::f32 ? static_cast<const void*>(held.numbers.data())
                                           : held.narrow.data(),
                 .type = type,
                 .rows = rows,
                 .columns = columns,
                 .row_step = lying == Lying::rows ? step : 1,
                 .column_step = lying == Lying::rows ? 1 : step};
  return held;
}

/// What is in the result before a product comes, and how the product is asked for.
enum class Into { set, add, bias };

struct GemmCase {
  Index rows, depth, columns;
  Lying a = Lying::rows, b = Lying::columns;
  Type a_type = Type::f32, b_type = Type::f32;
  Into into = Into::set;
  Index padding = 0;
  double shift = 0;  // of all numbers: a mean that is not 0 makes sums of one sign
  std::uint64_t seed = 1;

  std::string text() const {
    std::ostringstream out;
    out << rows << " x " << depth << " x " << columns << ", a " << static_cast<int>(a) << " "
        << to_string(a_type) << ", b " << static_cast<int>(b) << " " << to_string(b_type)
        << ", into " << static_cast<int>(into) << ", padding " << padding << ", shift " << shift
        << ", seed " << seed;
    return out.str();
  }
};

/// A case's operands, once for all instruction sets and threads.
struct GemmProblem {
  explicit GemmProblem(const GemmCase& given)
      : c(given),
        a(random_matrix(c.rows, c.depth, c.a, c.padding, c.a_type, c.seed, c.shift)),
        b(random_matrix(c.depth, c.columns, c.b, c.padding, c.b_type, c.seed + 1, c.shift)),
        before(normals(c.rows * (c.columns + c.padding), c.seed + 2)),
        bias(normals(c.columns, c.seed + 3)) {}

  std::vector<float> product(const Context& context) const {
    std::vector<float> out = before;
    multiply(a.matrix, b.matrix,
             {.data = out.data(),
              .stride = c.columns + c.padding,
              .add = c.into == Into::add,
              .bias = c.into == Into::bias ? bias.data() : nullptr},
             context);
    return out;
  }

  /// "" or the first number that is not within the bound of gemm.h.
  std::string beyond_bound(const std::vector<float>& got) const;

  GemmCase c;
  Held a, b;
  std::vector<float> before, bias;
};

std::string GemmProblem::beyond_bound(const std::vector<float>& got) const {
  std::ostringstream message;
  for (Index r = 0; r < c.rows && message.str().empty(); ++r) {
    for (Index column = 0; column < c.columns + c.padding; ++column) {
      const auto at = static_cast<std::size_t>(r * (c.columns + c.padding) + column);
      double want = static_cast<double>(before[at]), size = 0;
      if (column < c.columns) {
        if (c.into != Into::add) want = 0;
        if (c.into == Into::bias)
          want = static_cast<double>(bias[static_cast<std::size_t>(column)]);
        size = std::abs(want);
        for (Index k = 0; k < c.depth; ++k) {
          const double term = a.at(r, k) * b.at(k, column);
          want += term;
          size += std::abs(term);
        }
      }
      const double error = std::abs(static_cast<double>(got[at]) - want);
      if (error <= multiply_error(c.depth) * size) continue;
      message << "(" << r << ", " << column << ") is " << got[at] << ", expected " << want
              << " within " << multiply_error(c.depth) * size;
      break;
    }
  }
  return message.str();
}

std::vector<GemmCase> edge_cases() {
  std::vector<GemmCase> cases;
  std::uint64_t seed = 100;
  for (const Index rows : {1, 2, 3, 5, 16, 17, 33})
    for (const Index depth : {1, 7, 33, 257})
      for (const Index columns : {1, 4, 23, 49}) {
        GemmCase c{.rows = rows, .depth = depth, .columns = columns, .seed = ++seed};
        c.a = seed % 2 == 0 ? Lying::rows : Lying::columns;
        c.b = seed / 2 % 3 == 0 ? Lying::rows : Lying::columns;
        c.into = static_cast<Into>(seed % 3);
        c.padding = static_cast<Index>(seed % 4);
        cases.push_back(c);
      }
  return cases;
}

GemmCase random_gemm(std::uint64_t seed) {
  Random random(seed);
  const Type types[] = {Type::f32, Type::bf16, Type::f16};
  const Index rows = 1 + random.below(150), depth = 1 + random.below(700);
  GemmCase c{.rows = rows, .depth = depth, .columns = 1 + random.below(150), .seed = seed};
  c.a = random.below(2) == 0 ? Lying::rows : Lying::columns;
  c.b = random.below(2) == 0 ? Lying::rows : Lying::columns;
  c.a_type = types[random.below(3)];
  c.b_type = types[random.below(3)];
  c.into = static_cast<Into>(random.below(3));
  c.padding = random.below(3) * random.below(9);
  c.shift = static_cast<double>(random.below(2));
  return c;
}

void expect_within_bound(const GemmCase& c) {
  const GemmProblem problem(c);
  for (const Context& context : every_isa())
    EXPECT_SILENT(problem.beyond_bound(problem.product(context)))
        << c.text() << " on " << context.isa();
}

TEST(Gemm, EdgesAreWithinTheBoundOnEveryIsa) {
  for (const GemmCase& c : edge_cases()) expect_within_bound(c);
}

TEST(Gemm, RandomShapesTypesAndStepsAreWithinTheBoundOnEveryIsa) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) expect_within_bound(random_gemm(seed));
}

TEST(Gemm, TheBoundHoldsForDeepSumsOfOneSign) {
  for (const Index depth : {4096, 4100, 9000})
    for (const Index rows : {1, 6, 40})
      for (const Lying b : {Lying::rows, Lying::columns})
        expect_within_bound({.rows = rows, .depth = depth, .columns = 50, .b = b, .shift = 3});
}

// More numbers than are packed at a time, so that the depth is walked in several chunks.
TEST(Gemm, WideAndDeep) {
  const GemmCase c{.rows = 1100, .depth = 2100, .columns = 1050, .b = Lying::rows};
  const GemmProblem problem(c);
  const std::vector<float> got = problem.product(Context(2));
  Random random(5);
  for (int sample = 0; sample < 2000; ++sample) {
    const Index r = random.below(c.rows), column = random.below(c.columns);
    double want = 0, size = 0;
    for (Index k = 0; k < c.depth; ++k) {
      want += problem.a.at(r, k) * problem.b.at(k, column);
      size += std::abs(problem.a.at(r, k) * problem.b.at(k, column));
    }
    ASSERT_NEAR(got[static_cast<std::size_t>(r * c.columns + column)], want,
                multiply_error(c.depth) * size)
        << r << ", " << column;
  }
}

TEST(Gemm, SameBitsForAnyNumberOfThreads) {
  for (const GemmCase& c :
       {GemmCase{.rows = 1, .depth = 300, .columns = 900},
        {.rows = 7, .depth = 333, .columns = 1001},
        {.rows = 300, .depth = 270, .columns = 310, .into = Into::add},
        {.rows = 61, .depth = 1030, .columns = 500, .b = Lying::rows, .into = Into::bias},
        {.rows = 700, .depth = 50, .columns = 90, .a = Lying::columns, .b = Lying::rows}}) {
    const GemmProblem problem(c);
    for (const std::string& isa : supported_isas()) {
      const std::vector<float> one = problem.product(Context(1, isa));
      for (const Index threads : {2, 3, 7})
        EXPECT_SILENT(different_bits("threads", problem.product(Context(threads, isa)), one))
            << c.text() << " on " << isa << " with " << threads;
    }
  }
}

TEST(Gemm, NoDepthLeavesTheBias) {
  for (const Into into : {Into::set, Into::add, Into::bias}) {
    const GemmProblem problem({.rows = 3, .depth = 0, .columns = 5, .into = into, .padding = 2});
    EXPECT_SILENT(problem.beyond_bound(problem.product(Context())));
  }
}

TEST(Gemm, EmptyResultsAreLeftAlone) {
  const GemmProblem no_rows({.rows = 0, .depth = 4, .columns = 5});
  EXPECT_TRUE(no_rows.product(Context()).empty());
  const GemmProblem no_columns({.rows = 4, .depth = 4, .columns = 0, .padding = 3});
  EXPECT_SILENT(different_bits("no columns", no_columns.product(Context()), no_columns.before));
}

TEST(Gemm, InfinityAndNanGoWhereTheyBelong) {
  for (const Index rows : {3, 20}) {
    GemmProblem problem({.rows = rows, .depth = 40, .columns = 30});
    problem.a.numbers[static_cast<std::size_t>(1 * 40 + 7)] = gap;
    problem.b.numbers[static_cast<std::size_t>(5 * 40 + 9)] =
        std::numeric_limits<float>::infinity();
    for (const Context& context : every_isa()) {
      const std::vector<float> got = problem.product(context);
      for (Index r = 0; r < rows; ++r)
        for (Index c = 0; c < 30; ++c) {
          const float x = got[static_cast<std::size_t>(r * 30 + c)];
          EXPECT_EQ(std::isnan(x), r == 1) << r << ", " << c << " on " << context.isa();
          EXPECT_EQ(std::isinf(x), r != 1 && c == 5) << r << ", " << c << " on " << context.isa();
        }
    }
  }
}

}  // namespace
}  // namespace rapt::test
