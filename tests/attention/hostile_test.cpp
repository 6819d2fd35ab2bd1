#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "support/engine.h"
#include "support/refused.h"
#include "support/special_values.h"
#include "support/truth/bound.h"

// Wrong calls: one clear error that names what was given and what was expected, and nothing written
// (numerics.md 2.6).
namespace rapt::test {
namespace {

const Shape q_shape{2, 4, 5, 8}, k_shape{2, 2, 7, 8};

void expect_shapes_refused(const Shape& q, const Shape& k, const Shape& v,
                           const std::vector<std::string>& words) {
  const Tensor a(q), b(k), c(v);
  expect_refused([&] { attend(a, b, c); }, words);
}

TEST(Hostile, OperandsThatDisagreeAreNamedWithTheirSizes) {
  expect_shapes_refused({3, 4, 5, 8}, k_shape, k_shape, {"attend", "q", "k", "batch", "3", "2"});
  expect_shapes_refused(q_shape, k_shape, {6, 2, 7, 8}, {"attend", "v", "batch", "6", "2"});
  expect_shapes_refused(q_shape, {2, 3, 7, 8}, {2, 3, 7, 8}, {"attend", "heads", "4", "3"});
  expect_shapes_refused(q_shape, k_shape, {2, 4, 7, 8}, {"attend", "heads", "k", "v", "2", "4"});
  expect_shapes_refused(q_shape, k_shape, {2, 2, 9, 8}, {"attend", "keys", "7", "9"});
  expect_shapes_refused({2, 4, 5, 16}, k_shape, k_shape, {"attend", "dim", "16", "8"});
  expect_shapes_refused({2, 4, 5, 8}, {2, 0, 7, 8}, {2, 0, 7, 8}, {"attend", "heads", "4", "0"});
}

TEST(Hostile, OtherRanksAreRefusedWithTheirShape) {
  const Tensor q(q_shape), k(k_shape), flat({2, 7, 8});
  expect_refused([&] { attend(flat, k, k); }, {"attend", "q", "[2, 7, 8]"});
  expect_refused([&] { attend(q, flat, k); }, {"attend", "k", "[2, 7, 8]"});
  expect_refused([&] { attend(q, k, flat); }, {"attend", "v", "[2, 7, 8]"});
  expect_refused([&] { attend(View(), k, k); }, {"attend", "q", "[]"});
}

TEST(Hostile, DimsOutsideOneTo512AreRefused) {
  expect_shapes_refused({1, 1, 2, 513}, {1, 1, 2, 513}, {1, 1, 2, 8}, {"attend", "513", "512"});
  expect_shapes_refused({1, 1, 2, 8}, {1, 1, 2, 8}, {1, 1, 2, 600}, {"attend", "v", "600", "512"});
  expect_shapes_refused({1, 1, 2, 0}, {1, 1, 2, 0}, {1, 1, 2, 8}, {"attend", "dim", "0"});
}

TEST(Hostile, SizesPast64BitsAreRefusedBeforeMemoryIsTouched) {
  float number = 0;
  const Index huge = Index{1} << 31;
  const auto view = [&](Shape shape) { return View::unchecked(&number, shape, {0, 0, 0, 1}); };
  expect_refused(
      [&] {
        attend(view({huge, huge, 4, 8}), view({huge, 1, 4, 8}), view({huge, 1, 4, 8}));
      },
      {"2147483648"});
  expect_refused([&] { Tensor({huge, huge, 8}); }, {"2147483648"});
  expect_refused([&] { Tensor({2, -3}); }, {"-3"});
  expect_refused(
      [&] {
        attend(view({1, 1, -2, 8}), view({1, 1, 4, 8}), view({1, 1, 4, 8}));
      },
      {"-2"});
}

TEST(Hostile, WhatDoesNotFitInMemoryIsBadAllocAndTheContextLivesOn) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers abort on such requests";
#endif
  const std::vector<float> zeros(8);
  const Context context(2);
  const View q = View::unchecked(zeros.data(), {1 << 20, 1 << 5, 1 << 20, 8}, {0, 0, 0, 1});
  const View k = View::unchecked(zeros.data(), {1 << 20, 1, 1, 8}, {0, 0, 0, 1});
  EXPECT_THROW(attend(q, k, k, {}, context), std::bad_alloc);
  EXPECT_NO_THROW(Small(q_shape, k_shape).answer(context));
}

TEST(Hostile, MemoryIsCheckedWhenAViewIsMade) {
  const std::vector<float> numbers(99);
  expect_refused([&] { View(numbers, {2, 5, 10}); }, {"99", "[2, 5, 10]"});
  expect_refused([&] { View(numbers, {2, 3}, {97, 1}); }, {"99"});
  expect_refused([&] { View(numbers, {2, 3}, {-1, 1}); }, {"99"});
  expect_refused([&] { View(numbers, {2, 3}, {1}); }, {"[2, 3]", "[1]"});
  EXPECT_NO_THROW(View(numbers, {2, 3}, {96, 1}));
}

TEST(Hostile, NullPointersAreRefusedWhereThereAreElements) {
  const Tensor q(q_shape), k(k_shape);
  const View null_k = View::unchecked(nullptr, k_shape, k_shape.row_major());
  expect_refused([&] { attend(q, null_k, k); }, {"attend", "k", "null"});
  expect_refused([&] { attend(q, k, null_k); }, {"attend", "v", "null"});
  const Shape none{2, 4, 0, 8}, no_keys{2, 2, 0, 8};
  EXPECT_NO_THROW(attend(View::unchecked(nullptr, none, none.row_major()), k, k));
  const View null_keys = View::unchecked(nullptr, no_keys, no_keys.row_major());
  EXPECT_NO_THROW(attend(q, null_keys, null_keys));
}

TEST(Hostile, AddressesThatAreNoFloatsAreRefused) {
  const Tensor q(q_shape), k(k_shape);
  alignas(8) std::byte bytes[2 * 2 * 7 * 8 * 4 + 8] = {};
  for (const int shift : {1, 2, 3}) {
    const float* data;
    const std::byte* address = bytes + shift;
    std::memcpy(&data, &address, sizeof data);  // a misaligned pointer without a misaligned cast
    expect_refused([&] { attend(q, View::unchecked(data, k_shape, k_shape.row_major()), k); },
                   {"attend", "k", "align", "4"});
  }
}

TEST(Hostile, TheLastAxisMustBeContiguous) {
  const Tensor q(q_shape), wide({2, 2, 7, 16});
  Shape strides = wide.shape().row_major();
  strides[3] = 2;
  const View spread = View::unchecked(wide.data(), k_shape, strides);
  const Tensor k(k_shape);
  expect_refused([&] { attend(q, spread, k); }, {"attend", "k", "stride", "2", "1"});
  expect_refused([&] { attend(q, k, spread); }, {"attend", "v", "stride", "2", "1"});
}

TEST(Hostile, OutputsMayNotOverlapAnythingAndNothingIsWritten) {
  const Shape shape{1, 1, 6, 8};
  Tensor q = random_tensor(shape, 1), k = random_tensor(shape, 2), v = random_tensor(shape, 3);
  const Tensor before = q.clone();
  expect_refused([&] { attend_into(q, q, k, v); }, {"attend", "out", "q"});
  expect_refused([&] { attend_into(k, q, k, v); }, {"attend", "out", "k"});
  expect_refused([&] { attend_into(v, q, k, v); }, {"attend", "out", "v"});
  std::vector<float> memory(100);
  const View partly(std::span<const float>(memory).first(48), shape);
  const MutableView out(std::span<float>(memory).subspan(47, 48), shape);
  expect_refused([&] { attend_into(out, q, partly, v); }, {"attend", "out", "k"});
  EXPECT_NO_THROW(
      attend_into(MutableView(std::span<float>(memory).subspan(48, 48), shape), q, partly, v));
  const MutableView repeated = MutableView::unchecked(memory.data(), shape, {48, 48, 0, 1});
  expect_refused([&] { attend_into(repeated, q, k, v); }, {"attend", "out", "[48, 48, 0, 1]"});
  const MutableView short_rows = MutableView::unchecked(memory.data(), shape, {48, 48, 7, 1});
  expect_refused([&] { attend_into(short_rows, q, k, v); }, {"attend", "out"});
  Tensor wrong({1, 1, 6, 9});
  expect_refused([&] { attend_into(wrong, q, k, v); },
                 {"attend", "out", "[1, 1, 6, 9]", "[1, 1, 6, 8]"});
  EXPECT_SAME_BITS("q", q.numbers(), before.numbers());
}

TEST(Hostile, AnOutputInterleavedWithAnOperandIsRefused) {
  // out and v as two halves of one [tokens, 2, dim] block share no element, but the check is by
  // span: the caller is told to use memory of its own.
  const Shape shape{1, 1, 6, 8}, strides{96, 96, 16, 1};
  std::vector<float> memory = normals(96, 1);
  const Tensor q = random_tensor(shape, 2), k = random_tensor(shape, 3);
  const View v = View::unchecked(memory.data(), shape, strides);
  const MutableView out = MutableView::unchecked(memory.data() + 8, shape, strides);
  expect_refused([&] { attend_into(out, q, k, v); }, {"out", "overlaps", "v"});
}

void expect_how_refused(const Attention& how, const std::vector<std::string>& words) {
  const Tensor q(q_shape), k(k_shape);
  expect_refused([&] { attend(q, k, k, how); }, words);
}

TEST(Hostile, NumbersOfTheScoreMustMakeSense) {
  expect_how_refused({.scale = Scale::value(nan)}, {"scale", "nan"});
  expect_how_refused({.scale = Scale::value(infinity)}, {"scale", "inf"});
  expect_how_refused({.scale = Scale::log_n(1)}, {"log_n", "1"});
  expect_how_refused({.scale = Scale::log_n(-3)}, {"log_n", "-3"});
  expect_how_refused({.scale = Scale::log_n(nan)}, {"nan"});
  expect_how_refused({.softcap = 0.0}, {"softcap", "0", "none"});
  expect_how_refused({.softcap = -1}, {"softcap", "-1"});
  expect_how_refused({.softcap = nan}, {"softcap", "nan"});
  expect_how_refused({.softcap = infinity}, {"softcap", "inf"});
  for (const double size : {1e39, 1e-39, 1e13, 1e-13}) {
    expect_how_refused({.scale = Scale::value(size)}, {"scale", "2^40"});
    expect_how_refused({.softcap = size}, {"softcap", "2^40"});
  }
  expect_how_refused({.dropout = {-0.25, 0}}, {"dropout", "-0.25"});
  expect_how_refused({.dropout = {1.25, 0}}, {"dropout", "1.25"});
  expect_how_refused({.dropout = {nan, 0}}, {"dropout", "nan"});
}

TEST(Hostile, PartsOfTheScoreMustFitTheHeads) {
  const Tensor narrow({32, 3}), odd({31, 4}), flat({32}), even({4, 8}), small({5, 7});
  const Tensor dense({2, 4, 5, 6}), rank_2({5, 7});
  expect_how_refused({.bias = alibi(3)}, {"3", "4", "slopes"});
  expect_how_refused({.bias = kerple_log({1, 1, 1}, {1, 1, 1, 1})}, {"3", "4", "KERPLE"});
  expect_how_refused({.bias = kerple_log({1, 1, 1, 1}, {1, 1, 1})}, {"3", "4", "KERPLE"});
  expect_how_refused({.bias = kerple_log({1, 1, 1, 1}, {1, -1, 1, 1})}, {"KERPLE", "rate", "-1"});
  expect_how_refused({.bias = kerple_power({1, 1, 1, 1}, {1, 0, 1, 1})}, {"KERPLE", "rate", "0"});
  expect_how_refused({.bias = kerple_power({1, 1, 1, 1}, {1, 3, 1, 1})}, {"KERPLE", "3", "2"});
  expect_how_refused({.sinks = {1, 2, 3}}, {"sinks", "3", "4"});
  expect_how_refused({.sinks = {1, 2, 3, 1e10f}}, {"sink", "1e+10", "2^20"});
  expect_how_refused({.sinks = {1, 2, static_cast<float>(infinity), 3}}, {"sink", "inf", "2^20"});
  expect_how_refused({.bias = t5_bias(narrow)}, {"table", "[32, 3]", "4"});
  expect_how_refused({.bias = t5_bias(odd)}, {"table", "31"});
  expect_how_refused({.bias = t5_bias(flat)}, {"table", "[32]"});
  const Tensor fitting({32, 4});
  expect_how_refused({.bias = t5_bias(fitting, 3)}, {"max_distance", "3"});
  expect_how_refused({.bias = relative_keys(even)}, {"relative keys", "[4, 8]"});
  expect_how_refused({.bias = relative_keys(small)}, {"relative keys", "[5, 7]", "8"});
  expect_how_refused({.relative_values = even}, {"relative values", "[4, 8]"});
  expect_how_refused({.relative_values = small}, {"relative values", "[5, 7]", "8"});
  expect_how_refused({.bias = dense_bias(dense)}, {"dense", "[2, 4, 5, 6]", "[2, 4, 5, 7]"});
  expect_how_refused({.bias = dense_bias(rank_2)}, {"dense", "[5, 7]"});
  const View null_dense = View::unchecked(nullptr, {2, 4, 5, 7}, Shape{2, 4, 5, 7}.row_major());
  expect_how_refused({.bias = dense_bias(null_dense)}, {"dense", "null"});
  const View null_keys = View::unchecked(nullptr, {5, 8}, {8, 1});
  expect_how_refused({.bias = relative_keys(null_keys)}, {"relative keys", "null"});
  const Tensor table({33, 4});
  const auto* odd_address =
      reinterpret_cast<const float*>(reinterpret_cast<const char*>(table.data()) + 1);
  const View crooked = View::unchecked(odd_address, {32, 4}, {4, 1});
  expect_how_refused({.bias = t5_bias(crooked)}, {"relative table", "aligned"});
  const View endless = View::unchecked(table.data(), {32, 4}, {Index{1} << 62, 1});
  expect_how_refused({.bias = t5_bias(endless)}, {"attend", "relative table", "64 bits"});
}

TEST(Hostile, PatternsAndPlansMustFitTheLengths) {
  expect_how_refused({.pattern = tokens({7})}, {"tokens", "7"});
  expect_how_refused({.pattern = documents({4, 4})}, {"documents", "8", "7"});
  expect_how_refused({.pattern = blocks(4, {{2}})}, {"blocks", "2", "7"});
  const bool may_see[6] = {};
  expect_how_refused({.pattern = mask(may_see, 2, 3)}, {"mask", "2", "3", "5", "7"});
  expect_how_refused({.plan = std::make_shared<Plan>(full(), Lengths{5, 8})},
                     {"plan", "5", "8", "7"});
  expect_how_refused(
      {.pattern = causal(), .plan = std::make_shared<Plan>(window(1, 0), Lengths{5, 7})},
      {"plan", "window(1, 0)", "causal"});
}

TEST(Hostile, AMessageAboutALongPatternIsShort) {
  const bool may_see[5 * 7] = {true, false, true};
  try {
    attend(Tensor(q_shape), Tensor(k_shape), Tensor(k_shape),
           {.pattern = mask(may_see, 5, 7), .plan = std::make_shared<Plan>(full(), Lengths{5, 7})});
    ADD_FAILURE() << "accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_LT(std::string(error.what()).size(), 250u) << error.what();
  }
}

TEST(Hostile, WindowsOfAnySizeSaturate) {
  const Index most = std::numeric_limits<Index>::max(), least = std::numeric_limits<Index>::min();
  const Small small(q_shape, k_shape);
  const Attended want = attend(small.q, small.k, small.v);
  for (const Pattern& pattern : {window(most, most), keys(most), causal() | window(0, most)})
    EXPECT_SAME_BITS(attend(small.q, small.k, small.v, {.pattern = pattern}), want)
        << to_string(pattern);
  try {
    const Attended got = attend(small.q, small.k, small.v, {.pattern = window(least, least)});
    for (const float number : got.out.numbers()) EXPECT_EQ(number, 0);
  } catch (const std::invalid_argument&) {
  }
}

TEST(Hostile, BackwardChecksWhatForwardGaveIt) {
  const Small small(q_shape, k_shape);
  const Attended a = attend(small.q, small.k, small.v);
  const Tensor wrong({2, 4, 5, 9});
  const auto backward = [&](View dout, View out, const Rows& rows) {
    return [&small, dout, out, &rows] {
      attend_backward(dout, small.q, small.k, small.v, {out, rows});
    };
  };
  expect_refused(backward(wrong, a.out, a.rows),
                 {"attend_backward", "dout", "[2, 4, 5, 9]", "[2, 4, 5, 8]"});
  expect_refused(backward(small.dout, wrong, a.rows),
                 {"attend_backward", "out", "[2, 4, 5, 9]", "[2, 4, 5, 8]"});
  Rows rows = a.rows;
  rows.max.pop_back();
  expect_refused(backward(small.dout, a.out, rows), {"attend_backward", "rows", "39", "40"});
  rows = a.rows;
  rows.sum.resize(41);
  expect_refused(backward(small.dout, a.out, rows), {"attend_backward", "rows", "41", "40"});
  expect_refused(backward(small.dout, a.out, Rows{}), {"attend_backward", "rows", "0", "40"});
  const Tensor bad_k({2, 3, 7, 8});
  expect_refused([&] { attend_backward(small.dout, small.q, bad_k, bad_k, a); },
                 {"attend_backward", "heads", "4", "3"});
}

TEST(Hostile, ExplainRefusesWhatAttendRefuses) {
  expect_refused([] { explain({1, 4, 2, 8}, {1, 3, 2, 8}, {1, 3, 2, 8}); }, {"heads", "4", "3"});
}

TEST(Hostile, ContextsThatCannotBeAreRefused) {
  expect_refused([] { Context(-1); }, {"-1"});
  expect_refused([] { Context(1, "abacus"); }, {"abacus", supported_isas().front()});
}

TEST(Hostile, AFailedCallLeavesTheContextUsable) {
  const Context context(3);
  const Small small(q_shape, k_shape);
  const Answer want = small.answer(context);
  const Tensor bad({2, 3, 7, 8});
  for (int i = 0; i < 5; ++i)
    EXPECT_THROW(attend(small.q, bad, bad, {}, context), std::invalid_argument);
  EXPECT_SAME_BITS(small.answer(context).backward, want.backward);
}

}  // namespace
}  // namespace rapt::test
