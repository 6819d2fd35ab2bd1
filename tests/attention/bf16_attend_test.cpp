#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "rapt/kv_cache.h"
#include "support/engine.h"
#include "support/truth/bound.h"

// Attention whose operands are multiplied as bf16, probabilities included: on AMX where there is
// one, and through the portable engine everywhere. The bars are those of numerics.md 1.2 and 1.3.
namespace rapt::test {
namespace {

Tensor halves(View view) {
  Tensor copy(view.shape());
  const Doubles numbers = doubles(view);
  std::transform(numbers.begin(), numbers.end(), copy.data(),
                 [](double x) { return static_cast<float>(x); });
  return copy.converted(Type::bf16);
}

/// The operands of a case as bf16, and the same numbers as f32 for the definition.
struct Halves {
  explicit Halves(const Operands& o)
      : q(halves(o.q)), k(halves(o.k)), v(halves(o.v)), dout(halves(o.dout)), how(o.how) {}
  explicit Halves(const Case& c) : memory(std::make_unique<Operands>(c)), how(memory->how) {
    q = halves(memory->q), k = halves(memory->k), v = halves(memory->v);
    dout = halves(memory->dout);
  }
  Problem wide() const {
    return problem(q.converted(Type::f32), k.converted(Type::f32), v.converted(Type::f32), how);
  }
  Attended attend_f32(Tensor& out, const Context& context) const {
    out = Tensor({q.shape()[0], q.shape()[1], q.shape()[2], v.shape()[3]});
    return attend_into(out, q, k, v, how, context);
  }

  std::unique_ptr<Operands> memory;  // what the biases of `how` look at
  Tensor q, k, v, dout;
  Attention how;
};

struct Counts {
  double compared = 0, unusual = 0, worst = 0, worst_usual = 0;
};
Counts counts;

/// "" if every element is within u16 (1 + 2^-6) of `size_of` and 5 units of f32. Those beyond three
/// standard errors are counted.
template <class SizeOf>
std::string beyond_halves(const char* what, std::span<const float> got, const Truth& want,
                          const std::string& where, const SizeOf& size_of) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = std::fabs(static_cast<double>(got[i]) - want.value[i]);
    if (std::isnan(want.value[i]) && std::isnan(got[i])) continue;
    const double exact = 5 * want.unit[i] + want.floor;
    const double most = u16 * (1 + 0x1p-6) * size_of(i) + exact;
    counts.compared += 1;
    counts.unusual += !(error <= 3 * u16 * std::sqrt(want.square[i]) + exact);
    if (want.size[i] > 0) {
      counts.worst = std::max(counts.worst, (error - exact) / (u16 * want.size[i]));
      counts.worst_usual =
          std::max(counts.worst_usual, (error - exact) / (u16 * std::sqrt(want.square[i])));
    }
    if (error <= most) continue;
    std::ostringstream text;
    text << what << '[' << i << "]: got " << got[i] << ", expected " << want.value[i] << " +- "
         << most << "\n  " << where << '\n';
    return text.str();
  }
  return {};
}

std::string beyond_halves(const Case& c) {
  const Halves o(c);
  const Problem wide = o.wide();
  const Defined truth = define(wide);
  const DefinedGradients gradients =
      define_gradients(wide, doubles(o.dout.converted(Type::f32).view()));
  std::string text;
  for (const Context& context : every_bf16_isa()) {
    const std::string at = where(c, context);
    Tensor out;
    const Attended got = o.attend_f32(out, context);
    // Each probability is rounded, and so is their sum, which the output is divided by: where a
    // single term makes the output, the two need not cancel, and 1.2's bar without |O| is too low.
    text += beyond_halves("out", out.numbers(), truth.out, at, [&](std::size_t i) {
      return truth.out.size[i] + std::fabs(truth.out.value[i]);
    });
    for (Index r = 0; r < got.lse.elements(); ++r) {
      const double lse = truth.lse.value[static_cast<std::size_t>(r)];
      const double error =
          std::fabs(static_cast<double>(got.lse.numbers()[static_cast<std::size_t>(r)]) - lse);
      if (!(error <= u16 + 5 * truth.lse.unit[static_cast<std::size_t>(r)]) && std::isfinite(lse))
        text += "lse " + std::to_string(error) + " off, " + at + '\n';
    }
    const Attended half = attend(o.q, o.k, o.v, o.how, context);
    const Gradients g = attend_backward(o.dout, o.q, o.k, o.v, half, o.how, context);
    const auto compare = [&](const char* what, const Tensor& part, Truth want) {
      // Gradients of bf16 operands are rounded to bf16 once more.
      if (part.type() == Type::bf16) {
        for (std::size_t i = 0; i < want.value.size(); ++i)
          want.unit[i] += u16 * std::fabs(want.value[i]) * (1 + 2 * u16) / 5;
      }
      text += beyond_halves(what, part.converted(Type::f32).numbers(), want, at,
                            [&](std::size_t i) { return want.rounding[i]; });
    };
    compare("dq", g.dq, gradients.dq);
    compare("dk", g.dk, gradients.dk);
    compare("dv", g.dv, gradients.dv);
    if (o.how.bias.alibi) compare("dslopes", g.dslopes, gradients.dslopes);
    if (o.how.bias.table) compare("dtable", g.dtable, gradients.dtable);
    if (!o.how.sinks.empty()) compare("dsinks", g.dsinks, gradients.dsinks);
  }
  return text;
}

TEST(Bf16Attend, TheGridIsWithinTheBound) {
  for (const Case& c : attention_cases()) {
    EXPECT_SILENT(beyond_halves(c));
  }
  std::cout << "bf16: worst " << counts.worst << " u16 of the terms, " << counts.worst_usual
            << " u16 of their root; " << counts.unusual / counts.compared
            << " of the elements beyond three\n";
  EXPECT_LE(counts.unusual, 1e-4 * counts.compared);
}

TEST(Bf16Attend, HalfAnswersAreTheWideOnesRoundedOnce) {
  for (const Context& context : every_bf16_isa()) {
    const Halves o(parse_case(
        "queries=130; keys=200; heads=4; kv_heads=2; pattern=causal; dim=48; value_dim=72"));
    Tensor wide;
    const Attended want = o.attend_f32(wide, context);
    const Attended got = attend(o.q, o.k, o.v, o.how, context);
    EXPECT_SILENT(different_bits("out", got.out.converted(Type::f32).numbers(),
                                 wide.converted(Type::bf16).converted(Type::f32).numbers()));
    EXPECT_SILENT(different_bits("lse", got.lse.numbers(), want.lse.numbers()));
  }
}

TEST(Bf16Attend, BitsDoNotDependOnThreadsOrCompany) {
  for (const Context& context : every_bf16_isa()) {
    const Halves o(
        parse_case("batch=2; heads=4; kv_heads=2; queries=300; keys=300; pattern=causal; dim=64; "
                   "value_dim=64"));
    const Attended one = attend(o.q, o.k, o.v, o.how, Context(1, context.isa()));
    const Attended three = attend(o.q, o.k, o.v, o.how, Context(3, context.isa()));
    EXPECT_SILENT(different_bits("out", one.out.converted(Type::f32).numbers(),
                                 three.out.converted(Type::f32).numbers()));
    const auto backward = [&](Index threads) {
      return attend_backward(o.dout, o.q, o.k, o.v, one, o.how, Context(threads, context.isa()));
    };
    const Gradients a = backward(1), b = backward(3);
    for (const auto part : {&Gradients::dq, &Gradients::dk, &Gradients::dv})
      EXPECT_SILENT(different_bits("gradient", (a.*part).converted(Type::f32).numbers(),
                                   (b.*part).converted(Type::f32).numbers()));
    // The last hundred queries alone.
    const BasicView<const Bf16> q(o.q.numbers<Bf16>(), o.q.shape());
    Shape shape = o.q.shape();
    shape[2] = 100;
    const AnyView tail = AnyView::unchecked(q.row(0, 0, 200), Type::bf16, shape, q.strides());
    const Attended part = attend(tail, o.k, o.v, o.how, context);
    for (Index batch_head = 0; batch_head < 8; ++batch_head)
      for (Index i = 0; i < 100 * 64; ++i)
        ASSERT_EQ(
            part.out.numbers<Bf16>()[static_cast<std::size_t>(batch_head * 6400 + i)],
            one.out.numbers<Bf16>()[static_cast<std::size_t>((batch_head * 300 + 200) * 64 + i)])
            << batch_head << ' ' << i << " on " << context.isa();
  }
}

/// From 2,048 keys on, tasks of backward are longer, and so are sums in f32.
TEST(Bf16Attend, LongBackwardIsWithinTheBoundWithAnyNumberOfThreads) {
  for (const char* pattern : {"causal", "window(1100, 0) | tokens({0})"}) {
    const Case c =
        parse_case(std::string("queries=150; keys=2100; dim=32; value_dim=32; pattern=") + pattern);
    EXPECT_SILENT(beyond_halves(c));
    const Halves o(c);
    for (const Context& context : every_bf16_isa()) {
      const Attended y = attend(o.q, o.k, o.v, o.how, context);
      const auto backward = [&](Index threads) {
        return attend_backward(o.dout, o.q, o.k, o.v, y, o.how, Context(threads, context.isa()));
      };
      const Gradients a = backward(1), b = backward(3);
      for (const auto part : {&Gradients::dq, &Gradients::dk, &Gradients::dv})
        EXPECT_SILENT(different_bits("gradient", (a.*part).converted(Type::f32).numbers(),
                                     (b.*part).converted(Type::f32).numbers()));
    }
  }
}

/// `count` tokens of a [1, heads, tokens, dim] tensor of bf16.
AnyView bf16_tokens_of(const Tensor& tensor, Index first, Index count) {
  const BasicView<const Bf16> view(tensor.numbers<Bf16>(), tensor.shape());
  Shape shape = tensor.shape();
  shape[2] = count;
  return AnyView::unchecked(view.row(0, 0, first), Type::bf16, shape, view.strides());
}

TEST(Bf16Attend, ACacheOfHalvesGivesTheSameBits) {
  for (const Context& context : every_bf16_isa()) {
    for (const Index dim : {64, 40}) {  // the width of pages, and with zeros added
      Case c = parse_case("heads=4; kv_heads=2; queries=150; keys=150; pattern=causal");
      c.dim = c.value_dim = dim;
      Halves o(c);
      o.how.strict = true;
      const Attended want = attend(o.q, o.k, o.v, o.how, context);
      KvCache cache({.kv_heads = 2, .dim = dim, .type = CacheType::bf16}, context);
      const KvCache::Sequence sequence = cache.add();
      for (Index first = 0; first < 150; first += 75) {
        cache.append(sequence, bf16_tokens_of(o.k, first, 75), bf16_tokens_of(o.v, first, 75));
        const Attended got =
            attend(bf16_tokens_of(o.q, first, 75), cache, std::span(&sequence, 1), o.how);
        for (Index head = 0; head < 4; ++head)
          for (Index i = 0; i < 75 * dim; ++i)
            ASSERT_EQ(
                got.out.numbers<Bf16>()[static_cast<std::size_t>(head * 75 * dim + i)],
                want.out.numbers<Bf16>()[static_cast<std::size_t>((head * 150 + first) * dim + i)])
                << context.isa() << ", dim " << dim << ", head " << head << ", " << i;
      }
    }
  }
}

TEST(Bf16Attend, ADominantKeyGivesItsValueHoweverLargeItsLogitIs) {
  for (const Context& context : every_bf16_isa()) {
    for (const float m : {1e2f, 1e4f, 1e5f, 1e6f, 1e8f, 1e10f, 3e17f}) {
      Small small({1, 1, 1, 2}, {1, 1, 3, 2});
      at(small.q, 0, 0, 0, 0) = m, at(small.q, 0, 0, 0, 1) = 1;
      const float keys[] = {m, 1, m / 2, 1, -m, 2}, values[] = {3, 5, 7, 9, 11, 13};
      std::copy(keys, keys + 6, small.k.data());
      std::copy(values, values + 6, small.v.data());
      const Tensor q = small.q.converted(Type::bf16), k = small.k.converted(Type::bf16);
      const Tensor v = small.v.converted(Type::bf16), dout = small.dout.converted(Type::bf16);
      const Attended got = attend(q, k, v, {}, context);
      EXPECT_EQ(got.out.numbers<Bf16>()[0], Bf16(3.0f)) << m << " on " << context.isa();
      EXPECT_EQ(got.out.numbers<Bf16>()[1], Bf16(5.0f)) << m << " on " << context.isa();
      EXPECT_EQ(got.rows.sum[0], 1) << m << " on " << context.isa();
      const Gradients g = attend_backward(dout, q, k, v, got, {}, context);
      EXPECT_EQ(g.dv.numbers<Bf16>()[0], dout.numbers<Bf16>()[0]) << m << " on " << context.isa();
    }
  }
}

TEST(Bf16Attend, ARowHasItsBitsAloneWhateverTheScaleIs) {
  Case c = parse_case("heads=16; kv_heads=16; queries=64; keys=64; pattern=causal; scale=log_n");
  c.dim = c.value_dim = 64;
  Halves o(c);
  for (Bf16& x : o.q.numbers<Bf16>()) x = Bf16(4 * static_cast<float>(x));
  for (const Context& context : every_bf16_isa()) {
    const Attended all = attend(o.q, o.k, o.v, o.how, context);
    const Attended rest = attend(bf16_tokens_of(o.q, 1, 63), o.k, o.v, o.how, context);
    for (Index head = 0; head < 16; ++head)
      for (Index i = 0; i < 63 * 64; ++i)
        ASSERT_EQ(rest.out.numbers<Bf16>()[static_cast<std::size_t>(head * 63 * 64 + i)],
                  all.out.numbers<Bf16>()[static_cast<std::size_t>((head * 64 + 1) * 64 + i)])
            << head << ' ' << i << " on " << context.isa();
  }
}

TEST(Bf16Attend, NoKindOfNanIsRoundedAway) {
  for (const Context& context : every_bf16_isa()) {
    const Halves o(parse_case("queries=70; keys=70; dim=16; value_dim=16; sinks=1"));
    Tensor out;
    const Attended got = o.attend_f32(out, context);
    std::memset(out.data() + 5 * 16, 0xFF, 16 * sizeof(float));  // a NaN whose bits are all ones
    const Gradients g = attend_backward(o.dout, o.q, o.k, o.v, {out, got.rows}, o.how, context);
    EXPECT_TRUE(std::isnan(static_cast<float>(g.dq.numbers<Bf16>()[5 * 16]))) << context.isa();
    EXPECT_TRUE(std::isnan(static_cast<float>(g.dk.numbers<Bf16>()[3 * 16]))) << context.isa();
    EXPECT_FALSE(std::isnan(static_cast<float>(g.dq.numbers<Bf16>()[6 * 16]))) << context.isa();
  }
}

TEST(Bf16Attend, ExplainNamesTheEngineAndSaysWhyItIsNotAmx) {
  for (const Context& context : every_bf16_isa()) {
    const std::string words =
        explain({1, 8, 128, 64}, {1, 8, 128, 64}, {1, 8, 128, 64}, {}, Type::bf16, context);
    EXPECT_EQ(words.find("multiplied directly by AMX") != std::string::npos,
              context.isa() == "AMX");
    EXPECT_EQ(
        words.find("no AMX") != std::string::npos || words.find("AMX is") != std::string::npos,
        context.isa() != "AMX")
        << words;
  }
}

/// Hidden keys and values of NaN and infinity change no bit; visible ones come out.
TEST(Bf16Attend, HiddenSpecialValuesHaveNoEffect) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const Context& context : every_bf16_isa()) {
    const Case c = parse_case("queries=100; keys=140; pattern=window(20, 5); dim=40; value_dim=24");
    const Halves clean(c);
    Halves dirty(c);
    const Index hidden = 3;  // the first query is at 40 and sees from 20 on
    for (Index d = 0; d < 40; ++d)
      dirty.k.numbers<Bf16>()[static_cast<std::size_t>(hidden * 40 + d)] = Bf16(nan);
    for (Index d = 0; d < 24; ++d)
      dirty.v.numbers<Bf16>()[static_cast<std::size_t>(hidden * 24 + d)] =
          Bf16(d % 2 == 0 ? nan : infinity);
    const auto answer = [&](const Halves& o) {
      Attended y = attend(o.q, o.k, o.v, o.how, context);
      Gradients g = attend_backward(o.dout, o.q, o.k, o.v, y, o.how, context);
      return std::pair(std::move(y), std::move(g));
    };
    const auto [y, g] = answer(clean);
    const auto [dirty_y, dirty_g] = answer(dirty);
    const auto same = [&](const char* what, const Tensor& a, const Tensor& b) {
      EXPECT_SILENT(
          different_bits(what, a.converted(Type::f32).numbers(), b.converted(Type::f32).numbers()))
          << context.isa();
    };
    same("out", y.out, dirty_y.out);
    same("dq", g.dq, dirty_g.dq);
    same("dk", g.dk, dirty_g.dk);
    same("dv", g.dv, dirty_g.dv);

    Halves seen(c);
    seen.v.numbers<Bf16>()[static_cast<std::size_t>(70 * 24 + 5)] = Bf16(nan);
    const Attended seen_y = attend(seen.q, seen.k, seen.v, seen.how, context);
    for (Index query = 0; query < 100; ++query) {
      const bool sees = std::abs(40 + query - 70) <= 20 && 70 <= 40 + query + 5;
      for (Index d = 0; d < 24; ++d) {
        const Bf16 x = seen_y.out.numbers<Bf16>()[static_cast<std::size_t>(query * 24 + d)];
        if (sees && d == 5) {
          ASSERT_TRUE(std::isnan(static_cast<float>(x))) << query;
        } else {
          ASSERT_EQ(x, y.out.numbers<Bf16>()[static_cast<std::size_t>(query * 24 + d)]) << query;
        }
      }
    }
  }
}

TEST(Bf16Attend, ExplainSaysWhatMakesItRunInSteps) {
  const Shape shape{1, 2, 128, 64};
  for (const Context& context : every_bf16_isa()) {
    const auto kernel = [&](const Attention& how) {
      return explain(shape, shape, shape, how, Type::bf16, context);
    };
    EXPECT_NE(kernel({}).find("kernel    fused bf16"), std::string::npos);
    EXPECT_NE(kernel({.softcap = 30}).find("in steps (soft-cap)"), std::string::npos);
    EXPECT_NE(kernel({.bias = alibi(2)}).find("in steps (a bias by distance)"), std::string::npos);
    EXPECT_NE(kernel({.dropout = {.rate = 0.5}}).find("in steps (dropout)"), std::string::npos);
  }
}

}  // namespace
}  // namespace rapt::test
