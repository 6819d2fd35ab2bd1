#include <gtest/gtest.h>

#include <cmath>

#include "rapt/nn/functional.h"
#include "support/engine.h"
#include "support/network.h"
#include "support/refused.h"
#include "support/truth/bound.h"

namespace rapt::test {
namespace {

enum class Kind { layer, layer_without_shift, rms };
constexpr Kind kinds[] = {Kind::layer, Kind::layer_without_shift, Kind::rms};
constexpr double epsilon = 1e-5;

/// Rows of one width with a gain, a shift and a gradient from above.
struct Rows {
  Rows(Index rows, Index width_, Kind kind_)
      : width(width_),
        kind(kind_),
        x(random_tensor({rows, width_}, 1)),
        dy(random_tensor({rows, width_}, 2)),
        gain(random_parameter("gain", {width_}, 3, 0.5, 1)),
        shift(random_parameter("shift", {width_}, 4)) {}

  Index width;
  Kind kind;
  Tensor x, dy;
  Parameter gain, shift;

  Variable run(Tape& tape, const Variable& in) {
    if (kind == Kind::rms) return rms_norm(tape, in, gain, epsilon);
    return layer_norm(tape, in, gain, kind == Kind::layer ? &shift : nullptr, epsilon);
  }
  std::string name() const {
    return to_string(x.shape()) + " of kind " + std::to_string(static_cast<int>(kind));
  }
};

/// One row by the definition: the normalized numbers and 1 / deviation.
struct Normalized {
  Wide z;
  double inverse;
};
Normalized normalized(Kind kind, const double* x, Index width) {
  double mean = 0, squares = 0;
  for (Index i = 0; i < width && kind != Kind::rms; ++i) mean += x[i] / static_cast<double>(width);
  for (Index i = 0; i < width; ++i) squares += (x[i] - mean) * (x[i] - mean);
  Normalized row{{}, 1 / std::sqrt(squares / static_cast<double>(width) + epsilon)};
  for (Index i = 0; i < width; ++i) row.z.push_back((x[i] - mean) * row.inverse);
  return row;
}

/// All rows, and |z gain| + |shift|, what their errors are measured by.
Wide definition(const Rows& rows, const Wide& x, const Wide& gain, const Wide& shift,
                Wide* sizes = nullptr) {
  Wide y;
  const auto width = static_cast<std::size_t>(rows.width);
  for (std::size_t first = 0; first < x.size(); first += width) {
    const Normalized row = normalized(rows.kind, x.data() + first, rows.width);
    for (std::size_t i = 0; i < width; ++i) {
      const double plus = rows.kind == Kind::layer ? shift[i] : 0;
      y.push_back(row.z[i] * gain[i] + plus);
      if (sizes != nullptr) sizes->push_back(std::abs(row.z[i] * gain[i]) + std::abs(plus));
    }
  }
  return y;
}

/// The sizes of the terms that a number of dx, dgain and dshift is made of.
struct NormSizes {
  Wide dx, dgain, dshift;
};
NormSizes sizes_of_gradients(const Rows& rows, const Wide& x, const Wide& dy) {
  const auto width = static_cast<std::size_t>(rows.width);
  const Wide gain = widened(rows.gain.value);
  NormSizes sizes{{}, Wide(width), Wide(width)};
  for (std::size_t first = 0; first < x.size(); first += width) {
    const Normalized row = normalized(rows.kind, x.data() + first, rows.width);
    double plain = 0, weighted = 0;
    for (std::size_t i = 0; i < width; ++i) {
      const double g = std::abs(dy[first + i] * gain[i]) / static_cast<double>(width);
      plain += g;
      weighted += g * std::abs(row.z[i]);
      sizes.dgain[i] += std::abs(dy[first + i] * row.z[i]);
      sizes.dshift[i] += std::abs(dy[first + i]);
    }
    for (std::size_t i = 0; i < width; ++i)
      sizes.dx.push_back(row.inverse * (std::abs(dy[first + i] * gain[i]) + plain +
                                        std::abs(row.z[i]) * weighted));
  }
  return sizes;
}

void expect_gradients(Rows& rows, const Variable& in, const std::string& where) {
  const Wide x = widened(rows.x), dy = widened(rows.dy);
  const Wide gain = widened(rows.gain.value), shift = widened(rows.shift.value);
  const auto total = [&](const Wide& xs, const Wide& gains, const Wide& shifts) {
    const Wide y = definition(rows, xs, gains, shifts);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
    return sum;
  };
  const NormSizes sizes = sizes_of_gradients(rows, x, dy);
  EXPECT_SILENT(beyond("dx of " + where, in.gradient().numbers(),
                       differences([&](const Wide& v) { return total(v, gain, shift); }, x),
                       sizes.dx, 8));
  EXPECT_SILENT(beyond("dgain of " + where, rows.gain.gradient.numbers(),
                       differences([&](const Wide& v) { return total(x, v, shift); }, gain),
                       sizes.dgain, 16));
  if (rows.kind == Kind::layer) {
    EXPECT_SILENT(beyond("dshift of " + where, rows.shift.gradient.numbers(),
                         differences([&](const Wide& v) { return total(x, gain, v); }, shift),
                         sizes.dshift, 16));
  } else {
    EXPECT_TRUE(rows.shift.gradient.empty());
  }
}

TEST(Norm, IsTheDefinitionAndItsGradientThatOfTheDefinition) {
  for (const Kind kind : kinds)
    for (const auto& [count, width] : {std::pair<Index, Index>{3, 2}, {2, 7}, {70, 5}, {3, 65}})
      in_every_context([&](const Context& context) {
        Rows rows(count, width, kind);
        Tape tape(Tape::Mode::train, context);
        const Variable in = tape.input(rows.x.clone(), true);
        const Variable out = rows.run(tape, in);
        const std::string where = rows.name() + " on " + context.isa();
        Wide sizes;
        const Wide want = definition(rows, widened(rows.x), widened(rows.gain.value),
                                     widened(rows.shift.value), &sizes);
        EXPECT_SILENT(beyond(where, out.value().numbers(), want, sizes, 5));
        tape.backward(out, rows.dy.clone());
        expect_gradients(rows, in, where);
      });
}

// All numbers near 10^5 with differences of 1: f32 moments would keep two digits of them.
TEST(Norm, KeepsDifferencesOfLargeNumbers) {
  for (const Context& context : every_isa()) {
    Rows rows(3, 100, Kind::layer);
    for (float& number : rows.x.numbers()) number += 1e5f;
    Tape tape(Tape::Mode::forward, context);
    Wide sizes;
    const Wide want = definition(rows, widened(rows.x), widened(rows.gain.value),
                                 widened(rows.shift.value), &sizes);
    EXPECT_SILENT(beyond("far from zero on " + context.isa(),
                         rows.run(tape, tape.input(rows.x.clone())).value().numbers(), want, sizes,
                         5));
  }
}

// Squares that no f32 holds; and 1 / deviation without epsilon of a row of equal numbers.
TEST(Norm, HugeAndTinyNumbers) {
  for (const Context& context : every_isa())
    for (const float factor : {1e30f, 1e-30f}) {
      Rows rows(2, 33, Kind::rms);
      for (float& number : rows.x.numbers()) number *= factor;
      Tape tape(Tape::Mode::forward, context);
      Wide sizes;
      const Wide want = definition(rows, widened(rows.x), widened(rows.gain.value), {}, &sizes);
      EXPECT_SILENT(beyond("times " + std::to_string(factor),
                           rows.run(tape, tape.input(rows.x.clone())).value().numbers(), want,
                           sizes, 5));
    }
}

TEST(Norm, AWidthOfOneIsItsShiftOrItsSign) {
  for (const Context& context : every_isa()) {
    Rows layer(4, 1, Kind::layer), rms(4, 1, Kind::rms);
    Tape tape(Tape::Mode::train, context);
    const Variable in = tape.input(layer.x.clone(), true);
    const Variable out = layer.run(tape, in), root = rms.run(tape, tape.input(rms.x.clone()));
    for (Index row = 0; row < 4; ++row) {
      EXPECT_EQ(out.value().data()[row], layer.shift.value.data()[0]);
      const float x = rms.x.data()[row];
      EXPECT_NEAR(root.value().data()[row], std::copysign(rms.gain.value.data()[0], x),
                  2e-5 / (x * x));
    }
    tape.backward(out, layer.dy.clone());
    for (const float number : in.gradient().numbers()) EXPECT_EQ(number, 0);
  }
}

TEST(Norm, ANanStaysInItsRow) {
  for (const Kind kind : kinds)
    for (const Context& context : every_isa()) {
      Rows rows(5, 19, kind), spoiled(5, 19, kind);
      spoiled.x.data()[2 * 19 + 7] = std::nanf("");
      Tape tape(Tape::Mode::train, context);
      const Variable in = tape.input(rows.x.clone(), true),
                     bad = tape.input(spoiled.x.clone(), true);
      const Variable good_out = rows.run(tape, in), bad_out = spoiled.run(tape, bad);
      tape.backward(good_out, rows.dy.clone());
      Tape again(Tape::Mode::train, context);
      const Variable bad_in = again.input(spoiled.x.clone(), true);
      const Variable result = spoiled.run(again, bad_in);
      again.backward(result, spoiled.dy.clone());
      for (Index i = 0; i < 5 * 19; ++i) {
        const bool spoilt = i / 19 == 2;
        EXPECT_EQ(std::isnan(bad_out.value().data()[i]), spoilt) << i;
        EXPECT_EQ(std::isnan(bad_in.gradient().data()[i]), spoilt) << i;
        if (spoilt) continue;
        EXPECT_EQ(bad_out.value().data()[i], good_out.value().data()[i]);
        EXPECT_EQ(bad_in.gradient().data()[i], in.gradient().data()[i]);
      }
      for (const float number : spoiled.gain.gradient.numbers()) EXPECT_TRUE(std::isnan(number));
    }
}

TEST(Norm, SameBitsForAnyNumberOfThreads) {
  for (const Kind kind : kinds)
    EXPECT_SILENT(depends_on_threads([&](const Context& context) {
      Rows rows(777, 301, kind);
      Tape tape(Tape::Mode::train, context);
      const Variable in = tape.input(rows.x.clone(), true);
      const Variable out = rows.run(tape, in);
      Tensor y = out.value().clone();
      tape.backward(out, rows.dy.clone());
      std::vector<Tensor> all;
      all.push_back(std::move(y));
      all.push_back(in.gradient().clone());
      all.push_back(std::move(rows.gain.gradient));
      if (kind == Kind::layer) all.push_back(std::move(rows.shift.gradient));
      return all;
    }));
}

// 20,000 rows whose terms have one sign: a sum in f32 would drift by hundreds of units.
TEST(Norm, GradientsOfTheGainStayExactOverManyRows) {
  Rows rows(20000, 3, Kind::layer);
  for (float& number : rows.dy.numbers()) number = 0.3f;
  Tape tape;
  const Variable out = rows.run(tape, tape.input(rows.x.clone(), true));
  tape.backward(out, rows.dy.clone());
  const Wide want(3, 20000 * static_cast<double>(0.3f));
  EXPECT_SILENT(beyond("dshift", rows.shift.gradient.numbers(), want, want, 16));
}

TEST(Norm, NoRowsAndGradientsThatAddUp) {
  Rows none(0, 6, Kind::layer);
  Tape tape;
  const Variable in = tape.input(none.x.clone(), true), out = none.run(tape, in);
  EXPECT_EQ(out.shape(), (Shape{0, 6}));
  tape.backward(out, Tensor({0, 6}));
  for (const float number : none.gain.gradient_or_zeros().numbers()) EXPECT_EQ(number, 0);
  Rows rows(4, 6, Kind::layer);
  Tensor once;
  for (int round = 0; round < 2; ++round) {
    const Variable y = rows.run(tape, tape.input(rows.x.clone()));
    tape.backward(y, rows.dy.clone());
    if (round == 0) once = rows.gain.gradient.clone();
  }
  for (Index i = 0; i < 6; ++i) EXPECT_FLOAT_EQ(rows.gain.gradient.data()[i], 2 * once.data()[i]);
}

TEST(Norm, RefusesShapesThatDisagree) {
  Rows rows(4, 6, Kind::layer);
  Tape tape;
  const Variable in = tape.input(rows.x.clone());
  Parameter wrong = random_parameter("late_gain", {5}, 1);
  expect_refused([&] { layer_norm(tape, in, wrong, nullptr); },
                 {"layer_norm", "late_gain", "[5]", "expected f32 of shape [6]"});
  expect_refused([&] { layer_norm(tape, in, rows.gain, &wrong); }, {"layer_norm", "late_gain"});
  expect_refused([&] { rms_norm(tape, in, wrong); }, {"rms_norm", "late_gain", "[6]"});
  expect_refused([&] { rms_norm(tape, in, rows.gain, -1); }, {"epsilon is -1"});
  expect_refused([&] { rms_norm(tape, in, rows.gain, std::nan("")); }, {"epsilon is nan"});
  expect_refused([&] { rms_norm(tape, Variable(), rows.gain); }, {"rms_norm", "no numbers"});
}

}  // namespace
}  // namespace rapt::test
