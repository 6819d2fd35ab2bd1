#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/flush_denormals.h"
#include "kernels/kernels.h"
#include "support/engine.h"
#include "support/special_values.h"
#include "support/truth/bound.h"

namespace rapt::test {
using namespace detail;
namespace {

/// Every 16-bit pattern and its neighbours in f32, every 997th f32, and the ends.
std::vector<float> interesting_floats() {
  std::vector<float> numbers = {0.0f, -0.0f, infinity, -infinity, 65504, 65519.99f, 65520, 65536};
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits)
    for (const std::uint32_t below : {0u, 1u, 0x1000u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu})
      numbers.push_back(std::bit_cast<float>(bits << 16 | below));
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 9973)
    numbers.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  return numbers;
}

TEST(Type, Bf16RoundsToTheNearest) {
  for (const float x : interesting_floats()) {
    const Bf16 got(x);
    const auto back = static_cast<float>(got);
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(back));
      continue;
    }
    // The two neighbours of the same sign around x.
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
    const auto down = static_cast<std::uint16_t>(bits >> 16);
    const auto up = static_cast<std::uint16_t>(down + ((bits & 0xFFFF) != 0));
    const std::uint32_t rest = bits & 0xFFFF;
    const bool to_up = rest > 0x8000 || (rest == 0x8000 && (down & 1));
    ASSERT_EQ(got.bits, to_up ? up : down) << x;
  }
}

#if defined(__aarch64__)
using CompilersHalf = __fp16;
#elif defined(__x86_64__)
using CompilersHalf = _Float16;
#endif

#if defined(__aarch64__) || defined(__x86_64__)
TEST(Type, F16AgreesWithTheCompiler) {
  for (const float x : interesting_floats()) {
    const auto want = static_cast<CompilersHalf>(x);
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(F16(x))));
    } else {
      ASSERT_EQ(F16(x).bits, std::bit_cast<std::uint16_t>(want)) << x;
    }
  }
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    F16 half;
    half.bits = static_cast<std::uint16_t>(bits);
    const auto want = static_cast<float>(std::bit_cast<CompilersHalf>(half.bits));
    const auto got = static_cast<float>(half);
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got));
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(want)) << bits;
    }
  }
}
#endif

template <class T>
void expect_every_number_survives() {
  std::vector<T> all(0x10000 + 3);  // a tail shorter than any vector
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
  const auto count = static_cast<Index>(all.size());
  for (const Kernels* kernels : supported_kernels()) {
    std::vector<float> wide(all.size());
    std::vector<T> back(all.size());
    kernels->vectors.load(all.data(), type_of<T>, count, wide.data());
    kernels->vectors.store(wide.data(), count, type_of<T>, back.data());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto want = static_cast<float>(all[i]);
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(wide[i]) && std::isnan(static_cast<float>(back[i])));
      } else {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(want))
            << kernels->name << ' ' << i;
        ASSERT_EQ(back[i].bits, all[i].bits) << kernels->name << ' ' << i;
      }
    }
  }
}

TEST(Type, EveryNumberSurvivesTheKernels) {
  expect_every_number_survives<Bf16>();
  expect_every_number_survives<F16>();
}

template <class T>
void expect_kernels_round_like_the_type() {
  const std::vector<float> floats = interesting_floats();
  for (const Kernels* kernels : supported_kernels()) {
    std::vector<T> rounded(floats.size());
    kernels->vectors.store(floats.data(), static_cast<Index>(floats.size()), type_of<T>,
                           rounded.data());
    for (std::size_t i = 0; i < floats.size(); ++i) {
      if (std::isnan(floats[i])) {
        ASSERT_TRUE(std::isnan(static_cast<float>(rounded[i]))) << kernels->name;
      } else {
        ASSERT_EQ(rounded[i].bits, T(floats[i]).bits) << floats[i] << ' ' << kernels->name;
      }
    }
  }
}

TEST(Type, KernelsRoundLikeTheType) {
  expect_kernels_round_like_the_type<Bf16>();
  expect_kernels_round_like_the_type<F16>();
  const FlushDenormals guard;
  expect_kernels_round_like_the_type<Bf16>();
  expect_kernels_round_like_the_type<F16>();
}

TEST(Type, NamesAreParsedAndMistakesNamed) {
  for (const Type type : {Type::f32, Type::bf16, Type::f16})
    EXPECT_EQ(from_string<Type>(to_string(type)), type);
  EXPECT_THROW(from_string<Type>("fp32"), std::invalid_argument);
}

TEST(Type, ATensorKnowsItsType) {
  Tensor tensor({2, 3}, Type::bf16);
  tensor.numbers<Bf16>()[4] = Bf16(1.5f);
  EXPECT_EQ(tensor.converted(Type::f32).numbers()[4], 1.5f);
  EXPECT_EQ(tensor.clone().numbers<Bf16>()[4], Bf16(1.5f));
  EXPECT_THROW(tensor.numbers(), std::invalid_argument);
  EXPECT_THROW(tensor.view(), std::invalid_argument);
}

struct Types {
  Type q, k, v, dout;
};
const Types choices[] = {{Type::bf16, Type::bf16, Type::bf16, Type::bf16},
                         {Type::f16, Type::f16, Type::f16, Type::f16},
                         {Type::f32, Type::bf16, Type::bf16, Type::f32},
                         {Type::bf16, Type::f32, Type::f16, Type::bf16}};

/// The numbers of a view after a journey through the type.
Tensor rounded(View view, Type type) {
  Tensor copy(view.shape());
  const Doubles numbers = doubles(view);
  std::transform(numbers.begin(), numbers.end(), copy.data(),
                 [](double x) { return static_cast<float>(x); });
  return copy.converted(type);
}

// Sums are f32 or better whatever the operands are, so an answer is the f32 answer on the same
// numbers, rounded once: nothing is left to tolerance.
void expect_the_f32_answer(const Case& c, const Types& types) {
  const Operands o(c);
  const Tensor q = rounded(o.q, types.q), k = rounded(o.k, types.k), v = rounded(o.v, types.v);
  const Tensor dout = rounded(o.dout, types.dout);
  const Tensor wide_q = q.converted(Type::f32), wide_k = k.converted(Type::f32);
  const Tensor wide_v = v.converted(Type::f32), wide_dout = dout.converted(Type::f32);
  for (const Context& context : every_isa()) {
    Attended got = attend(q, k, v, o.how, context);
    Attended want = attend(wide_q, wide_k, wide_v, o.how, context);
    ASSERT_EQ(got.out.type(), types.q);
    const Gradients gradients = attend_backward(dout, q, k, v, got, o.how, context);
    const Gradients want_gradients =
        attend_backward(wide_dout, wide_q, wide_k, wide_v, want, o.how, context);
    const auto compare = [&](const char* what, const Tensor& ours, const Tensor& f32, Type type) {
      ASSERT_EQ(ours.type(), type) << what;
      EXPECT_SILENT(different_bits(what, ours.converted(Type::f32).numbers(),
                                   f32.converted(type).converted(Type::f32).numbers()))
          << where(c, context);
    };
    compare("out", got.out, want.out, types.q);
    compare("dq", gradients.dq, want_gradients.dq, types.q);
    compare("dk", gradients.dk, want_gradients.dk, types.k);
    compare("dv", gradients.dv, want_gradients.dv, types.v);
    got.out = {}, want.out = {};
    EXPECT_SAME_BITS(got, want) << where(c, context);
  }
}

TEST(Type, AnAnswerIsTheF32AnswerRoundedOnce) {
  std::uint64_t seed = 1;
  for (const Types& types : choices)
    for (const char* call :
         {"queries=70; keys=130; pattern=causal; dim=64; value_dim=64",
          "queries=5; keys=200; pattern=full; dim=33; value_dim=7; bias=alibi+t5+shaw+dense",
          "queries=129; keys=129; pattern=window(20, 3) | tokens({0}); dim=1; value_dim=80; "
          "softcap=5; sinks=1; dropout=0.2",
          "queries=1; keys=1; dim=512; value_dim=512; inputs=heavy"}) {
      Case c = parse_case(call);
      c.batch = 2, c.heads = 4, c.kv_heads = 2, c.seed = seed++;
      expect_the_f32_answer(c, types);
    }
}

TEST(Type, StridesCountNumbersOfTheType) {
  const Tensor memory = random_tensor({2, 70, 3, 8}, 1).converted(Type::bf16);
  const BasicView<const Bf16> bnhd(memory.numbers<Bf16>(), memory.shape());
  const AnyView swapped = bnhd.swapped(1, 2);
  Tensor copy({2, 3, 70, 8}, Type::bf16);
  for (Index item = 0; item < 2; ++item)
    for (Index head = 0; head < 3; ++head)
      for (Index token = 0; token < 70; ++token)
        for (Index c = 0; c < 8; ++c)
          copy.numbers<Bf16>()[static_cast<std::size_t>(((item * 3 + head) * 70 + token) * 8 + c)] =
              static_cast<const Bf16*>(swapped.row(item, head, token))[c];
  for (const Context& context : every_isa()) {
    const Attended got = attend(swapped, swapped, swapped, {.pattern = causal()}, context);
    const Attended want = attend(copy, copy, copy, {.pattern = causal()}, context);
    EXPECT_SILENT(different_bits("out", got.out.converted(Type::f32).numbers(),
                                 want.out.converted(Type::f32).numbers()));
  }
}

TEST(Type, MisalignedNumbersAreRefused) {
  const Tensor memory({1, 1, 4, 8}, Type::bf16);
  const auto* odd = static_cast<const char*>(memory.memory()) + 1;
  const AnyView view =
      AnyView::unchecked(odd, Type::bf16, {1, 1, 3, 8}, Shape{1, 1, 3, 8}.row_major());
  try {
    attend(view, view, view);
    ADD_FAILURE() << "accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("2 bytes"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace rapt::test
