#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "rapt/positions.h"
#include "support/engine.h"
#include "support/truth/bound.h"

// Positions that are added to the input: sinusoidal, learned, axial.
namespace rapt::test {
namespace {

using Layout = Sinusoidal::Layout;
using Frequencies = Sinusoidal::Frequencies;

/// One channel of one row, straight from the formula; `sine` says which of the two, `i` which
/// frequency.
double channel(const Sinusoidal& how, Index position, Index c) {
  const Index dim = how.dim;
  const bool exclusive = how.frequencies == Frequencies::exclusive;
  const Index sines = exclusive ? dim - dim / 2 : dim / 2;
  if (c >= sines + dim / 2) return 0;  // the padding of tensor2tensor
  const bool interleaved = how.layout == Layout::interleaved;
  const bool sine = interleaved ? c % 2 == 0 : c < sines;
  const Index i = interleaved ? c / 2 : sine ? c : c - sines;
  const long double exponent =
      exclusive
          ? 2.0L * static_cast<long double>(i) / static_cast<long double>(dim)
          : static_cast<long double>(i) / static_cast<long double>(std::max<Index>(dim / 2 - 1, 1));
  const long double angle =
      static_cast<long double>(position) * std::pow(static_cast<long double>(how.base), -exponent);
  return static_cast<double>(sine ? std::sin(angle) : std::cos(angle));
}

TEST(PositionsSinusoidal, AreTheFormulaInEveryLayoutUpToAMillion) {
  const std::vector<Index> positions{0, 1, 2, 511, 4096, 131072, 1000000, -7};
  for (const Layout layout : {Layout::interleaved, Layout::halves})
    for (const Frequencies frequencies : {Frequencies::exclusive, Frequencies::inclusive})
      for (const double base : {100.0, 10000.0})
        for (const Index dim : {1, 2, 3, 4, 5, 7, 64, 511, 512}) {
          const Sinusoidal how{dim, base, layout, frequencies};
          const Tensor table = sinusoidal(how, positions);
          ASSERT_EQ(table.shape(), (Shape{8, dim}));
          for (Index row = 0; row < 8; ++row)
            for (Index c = 0; c < dim; ++c) {
              const double want = channel(how, positions[row], c);
              ASSERT_NEAR(table.numbers()[row * dim + c], want,
                          u32 * std::fabs(want) + 4e-16 * std::fabs(positions[row]))
                  << "dim " << dim << " position " << positions[row] << " channel " << c;
            }
        }
}

TEST(PositionsSinusoidal, ThePublishedTableOfFourChannels) {
  const Tensor table = sinusoidal({.dim = 4, .base = 100}, 0, 3);
  const double want[] = {0,
                         1,
                         0,
                         1,
                         0.8414709848,
                         0.5403023059,
                         0.0998334166,
                         0.9950041653,
                         0.9092974268,
                         -0.4161468365,
                         0.1986693308,
                         0.9800665778};
  for (std::size_t i = 0; i < 12; ++i) EXPECT_NEAR(table.numbers()[i], want[i], 6e-8);
  const double products[] = {2, 1.535306471, 0.563919741};
  for (Index distance = 0; distance < 3; ++distance) {
    double sum = 0;
    for (Index c = 0; c < 4; ++c)
      sum += double{table.numbers()[c]} * table.numbers()[distance * 4 + c];
    EXPECT_NEAR(sum, products[distance], 2e-7);
  }
}

TEST(PositionsSinusoidal, LayoutsArePermutationsAndEndsAreWhereTheyBelong) {
  const Tensor near = sinusoidal({.dim = 8}, 3, 20);
  const Tensor far = sinusoidal({.dim = 8, .layout = Layout::halves}, 3, 20);
  for (Index row = 0; row < 20; ++row)
    for (Index i = 0; i < 4; ++i)
      for (Index s = 0; s < 2; ++s)
        EXPECT_EQ(near.numbers()[row * 8 + 2 * i + s], far.numbers()[row * 8 + s * 4 + i]);
  // The last frequency of tensor2tensor is 1 / base itself, and an odd dim is padded.
  const Tensor t2t = sinusoidal(
      {.dim = 9, .layout = Layout::halves, .frequencies = Frequencies::inclusive}, 10000, 1);
  EXPECT_NEAR(t2t.numbers()[3], std::sin(1.0), 1e-7);
  EXPECT_NEAR(t2t.numbers()[7], std::cos(1.0), 1e-7);
  EXPECT_EQ(t2t.numbers()[8], 0);
  // Marian with an odd dim: one sine more than cosines.
  const Tensor marian = sinusoidal({.dim = 5, .layout = Layout::halves}, 0, 1);
  EXPECT_EQ(std::accumulate(marian.numbers().begin(), marian.numbers().end(), 0.0f), 2);
  EXPECT_EQ(marian.numbers()[2], 0);
}

TEST(PositionsSinusoidal, NormsAndProductsDependOnDistanceAlone) {
  const Tensor table = sinusoidal({.dim = 64}, 0, 300);
  const auto product = [&](Index a, Index b) {
    double sum = 0;
    for (Index c = 0; c < 64; ++c)
      sum += double{table.numbers()[a * 64 + c]} * table.numbers()[b * 64 + c];
    return sum;
  };
  for (const Index p : {0, 10, 250}) {
    EXPECT_NEAR(product(p, p), 32, 1e-5);
    EXPECT_NEAR(product(p, p + 17), product(3, 20), 1e-5);
  }
}

TEST(PositionsLearned, RowsAreLookedUpWithAnOffset) {
  const Tensor table = random_tensor({12, 3}, 1);
  const Tensor bart = learned_positions(table, {2, 5}, 4, 2);
  ASSERT_EQ(bart.shape(), (Shape{2, 5, 3}));
  const std::vector<Index> listed{9, 0, 0, 3};
  const Tensor list = learned_positions(table, {2, 2}, Positions::list(listed));
  for (Index c = 0; c < 3; ++c) {
    for (Index item = 0; item < 2; ++item)
      for (Index t = 0; t < 5; ++t)
        EXPECT_EQ(bart.numbers()[(item * 5 + t) * 3 + c], table.numbers()[(6 + t) * 3 + c]);
    for (Index i = 0; i < 4; ++i)
      EXPECT_EQ(list.numbers()[i * 3 + c], table.numbers()[listed[i] * 3 + c]);
  }
  // A transposed table is a view like any other.
  const Tensor turned = random_tensor({3, 12}, 2);
  const Tensor got = learned_positions(turned.view().swapped(0, 1), {1, 12});
  for (Index p = 0; p < 12; ++p)
    for (Index c = 0; c < 3; ++c) EXPECT_EQ(got.numbers()[p * 3 + c], turned.numbers()[c * 12 + p]);
}

double loss(const Tensor& out, const Tensor& dout) {
  double sum = 0;
  for (std::size_t i = 0; i < out.numbers().size(); ++i)
    sum += double{out.numbers()[i]} * dout.numbers()[i];
  return sum;
}

/// The look-up is linear: the slope in a number of the table is the loss with only that number 1.
template <class Loss>
void expect_slopes(Tensor& table, const Tensor& gradient, const Loss& loss_of) {
  std::fill(table.numbers().begin(), table.numbers().end(), 0.0f);
  ASSERT_EQ(gradient.shape(), table.shape());
  for (std::size_t i = 0; i < table.numbers().size(); ++i) {
    table.numbers()[i] = 1;
    EXPECT_NEAR(gradient.numbers()[i], loss_of(), 1e-6) << i;
    table.numbers()[i] = 0;
  }
}

TEST(PositionsLearned, GradientsAreSlopesAndSharedRowsAddUp) {
  Tensor table({7, 4});
  const Tensor dout = random_tensor({2, 3, 4}, 3);
  const std::vector<Index> listed{1, 1, 4, 0, 1, 5};
  for (const Positions& positions : {Positions(2), Positions::list(listed)})
    expect_slopes(table, learned_positions_backward(dout, 7, positions, 1), [&] {
      return loss(learned_positions(table, {2, 3}, positions, 1), dout);
    });
}

TEST(PositionsLearned, RealTokensAreCountedAsRobertaDoes) {
  const std::vector<std::uint8_t> right{1, 1, 1, 0, 0}, left{0, 0, 1, 1};
  EXPECT_EQ(positions_of_real_tokens(right, 1), (std::vector<Index>{2, 3, 4, 1, 1}));
  EXPECT_EQ(positions_of_real_tokens(left, 1), (std::vector<Index>{1, 1, 2, 3}));
}

TEST(PositionsAxial, RowsAndColumnsStandSideBySide) {
  const Tensor rows = random_tensor({3, 2}, 4), columns = random_tensor({5, 4}, 5);
  for (const Axial::Order order : {Axial::Order::row_major, Axial::Order::column_major}) {
    const Axial axial{rows, columns, order};
    EXPECT_EQ(axial.positions(), 15);
    EXPECT_EQ(axial.dim(), 6);
    const Tensor out = axial_positions(axial, {1, 15});
    for (Index p = 0; p < 15; ++p) {
      const bool by_rows = order == Axial::Order::row_major;
      const Index row = by_rows ? p / 5 : p % 3, column = by_rows ? p % 5 : p / 3;
      for (Index c = 0; c < 2; ++c)
        EXPECT_EQ(out.numbers()[p * 6 + c], rows.numbers()[row * 2 + c]);
      for (Index c = 0; c < 4; ++c)
        EXPECT_EQ(out.numbers()[p * 6 + 2 + c], columns.numbers()[column * 4 + c]);
    }
  }
  const Tensor reformer_rows({64, 64}), reformer_columns({64, 192});
  const Axial reformer{reformer_rows, reformer_columns};
  EXPECT_EQ(reformer.parameters(), 64 * 64 + 64 * 192);  // and not 4096 * 256
  EXPECT_EQ(reformer.positions(), 4096);
  EXPECT_EQ(reformer.dim(), 256);
}

TEST(PositionsAxial, GradientsAreSlopes) {
  for (const Axial::Order order : {Axial::Order::row_major, Axial::Order::column_major}) {
    Tensor rows({3, 2}), columns({4, 3});
    const Axial axial{rows, columns, order};
    const Tensor dout = random_tensor({2, 9, 5}, 6);
    const AxialGradients d = axial_positions_backward(dout, axial, 2);
    const auto loss_of = [&] { return loss(axial_positions(axial, {2, 9}, 2), dout); };
    expect_slopes(rows, d.drows, loss_of);
    expect_slopes(columns, d.dcolumns, loss_of);
  }
}

}  // namespace
}  // namespace rapt::test
