#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "attention/lsh/lsh_order.h"
#include "base/torch_random.h"
#include "rapt/lsh.h"
#include "support/engine.h"
#include "support/refused.h"
#include "support/truth/bound.h"

namespace rapt::test {
using namespace detail;
namespace {

TEST(Lsh, TextIsParsedBack) {
  for (const Lsh& options :
       {Lsh{}, Lsh{.chunk = 16, .rounds = 4, .buckets = {8, 16}, .seed = 7},
        Lsh{.chunk = 3, .rounds = 2, .before = 2, .after = 1, .keys = Lsh::Keys::separate},
        Lsh{.duplicates = Lsh::Duplicates::once}}) {
    const Pattern pattern = lsh(options) & causal();
    EXPECT_EQ(Pattern::parse(to_string(pattern)), pattern) << to_string(pattern);
  }
  EXPECT_EQ(Pattern::parse("lsh(64)"), lsh({}));
  EXPECT_EQ(Pattern::parse(to_string(chunks(64, 1, 2))), chunks(64, 1, 2));
  EXPECT_EQ(chunks(4, 1, 0).keys_of(1, {10, 10}), (Ranges{{0, 4}, {8, 10}}));
  EXPECT_EQ(chunks(4, 0, 1).keys_of(9, {10, 10}), (Ranges{{0, 4}, {8, 10}}));
  EXPECT_THROW(chunks(0, 1, 1), std::invalid_argument);
  for (const char* bad : {"lsh()", "lsh(0)", "lsh(64, 0)", "lsh(64, 1, {3})", "lsh(64, 1, twice)"})
    EXPECT_THROW(Pattern::parse(bad), std::invalid_argument) << bad;
}

TEST(Lsh, BucketsAreChosenAsTransformersDoes) {
  EXPECT_EQ(lsh_buckets(100, 64), (std::vector<Index>{4}));  // padded to 128
  EXPECT_EQ(lsh_buckets(1000, 64), (std::vector<Index>{32}));
  EXPECT_EQ(lsh_buckets(4096, 64), (std::vector<Index>{128}));
  EXPECT_EQ(lsh_buckets(16384, 64), (std::vector<Index>{16, 32}));
}

/// A call and its rule in doubles, one pair of slots at a time.
struct Hashed {
  Hashed(const Lsh& options, Pattern pattern, Index count)
      : lsh(options), rest(std::move(pattern)), tokens(count) {}

  Lsh lsh;
  Pattern rest;
  Index heads = 2, tokens, dim = 8, value_dim = 5;
  Doubles q, k, v;
  std::shared_ptr<const LshOrder> order;

  Pattern pattern() const { return rapt::lsh(lsh) & rest; }

  /// How often chunk b stands among those that a slot of chunk a sees.
  Index meetings(Index a, Index b) const {
    if (!order->sorted()) return 1;
    const Index chunks = order->sorted_count() / lsh.chunk;
    Index count = 0;
    for (Index step = -lsh.before; step <= lsh.after; ++step)
      count += ((a / lsh.chunk + step) % chunks + chunks) % chunks == b / lsh.chunk;
    return count;
  }

  /// Slots of key j that slots of query i see.
  Index all_meetings(Index head, Index i, Index j) const {
    Index count = 0;
    for (Index a = 0; a < order->sorted_count(); ++a)
      for (Index b = 0; b < order->sorted_count(); ++b)
        count += order->queries(head)[a] == i && order->keys(head)[b] == j && meetings(a, b) > 0;
    return count;
  }

  double factor(const Doubles& x, Index row) const {
    if (lsh.keys == Lsh::Keys::separate) return 1;
    double square = 0;
    for (Index c = 0; c < dim; ++c) square += x[row * dim + c] * x[row * dim + c];
    return 1 / std::sqrt(square / static_cast<double>(dim) + 1e-6);
  }

  /// What the probabilities of a token sum up to. One that sees only itself has logits of -1e5, and
  /// its denominators are f32: of each round, and once more of all.
  double lonely_sum(Index head, Index i, double most) const {
    if (most != -1e5 || lsh.duplicates == Lsh::Duplicates::once) return 1;
    Doubles lse(order->rounds());
    double exact = 0;
    for (Index a = 0; a < order->sorted_count(); ++a) {
      if (order->queries(head)[a] != i) continue;
      double count = 0;
      for (Index b = 0; b < order->sorted_count(); ++b)
        if (order->keys(head)[b] == i) count += static_cast<double>(meetings(a, b));
      lse[a / order->sorted_per_round()] = static_cast<float>(-1e5 + std::log(count));
      exact += count;
    }
    double sum = 0;
    for (const double z : lse) sum += std::exp(z + 1e5);
    return exact / std::exp(static_cast<double>(static_cast<float>(-1e5 + std::log(sum))) + 1e5);
  }

  /// out [heads, tokens, value_dim] of these operands; the order stays as it is.
  Doubles out(const Doubles& q_, const Doubles& k_, const Doubles& v_) const {
    Doubles all;
    for (Index head = 0; head < heads; ++head) {
      const std::int32_t *queries = order->queries(head), *keys = order->keys(head);
      std::vector<Doubles> sums(static_cast<std::size_t>(tokens), Doubles(value_dim));
      Doubles weight(tokens), most(tokens, -1e300);
      for (int pass = 0; pass < 2; ++pass)
        for (Index a = 0; a < order->sorted_count(); ++a)
          for (Index b = 0; b < order->sorted_count(); ++b) {
            const Index i = queries[a], j = keys[b];
            if (i < 0 || j < 0 || meetings(a, b) == 0) continue;
            const bool self = i == j && lsh.keys == Lsh::Keys::shared;
            const Ranges seen = rest.keys_of(i, {tokens, tokens});
            const bool visible = std::any_of(seen.begin(), seen.end(), [&](const Range& r) {
              return r.begin <= j && j < r.end;
            });
            if (!visible && !self) continue;
            double z = 0;
            for (Index c = 0; c < dim; ++c)
              z += q_[(head * tokens + i) * dim + c] * k_[(head * tokens + j) * dim + c];
            z *= factor(k_, head * tokens + j) / std::sqrt(static_cast<double>(dim));
            if (self) z = -1e5;
            if (pass == 0) {
              most[i] = std::max(most[i], z);
              continue;
            }
            double p = std::exp(z - most[i]);
            if (lsh.duplicates == Lsh::Duplicates::once) {
              p /= static_cast<double>(all_meetings(head, i, j));
            } else {
              p *= static_cast<double>(meetings(a, b));
            }
            weight[i] += p;
            for (Index t = 0; t < value_dim; ++t)
              sums[i][t] += p * v_[(head * tokens + j) * value_dim + t];
          }
      for (Index i = 0; i < tokens; ++i)
        for (Index t = 0; t < value_dim; ++t)
          all.push_back(weight[i] == 0 ? 0 : sums[i][t] / weight[i] * lonely_sum(head, i, most[i]));
    }
    return all;
  }
};

Doubles moved(const Doubles& x, const Doubles& along, double step) {
  Doubles y = x;
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += step * along[i];
  return y;
}

double dot(const Doubles& a, std::span<const float> b) {
  double total = 0;
  for (std::size_t i = 0; i < a.size(); ++i) total += a[i] * static_cast<double>(b[i]);
  return total;
}

/// Forward against the definition, each gradient along a random direction against differences of
/// it.
void expect_defined(Hashed h) {
  const Shape shape{1, h.heads, h.tokens, h.dim};
  const bool shared = h.lsh.keys == Lsh::Keys::shared;
  const Tensor q = random_tensor(shape, 1), other = random_tensor(shape, 2);
  const Tensor& k = shared ? q : other;
  const Tensor v = random_tensor({1, h.heads, h.tokens, h.value_dim}, 3);
  const Tensor dout = random_tensor(v.shape(), 4);
  h.q = doubles(q.view()), h.k = doubles(k.view()), h.v = doubles(v.view());
  const Attention how{.pattern = h.pattern()};
  for (const Context& context : every_isa()) {
    const std::string at = to_string(how.pattern) + " on " + context.isa();
    const Attended got = attend(q, k, v, how, context);
    h.order = got.rows.order;
    const Doubles want = h.out(h.q, h.k, h.v);
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got.out.numbers()[i], want[i], 2e-6) << i << ' ' << at;
    const Gradients g = attend_backward(dout, q, k, v, got, how, context);
    const auto along = [&](std::uint64_t seed, std::size_t count) {
      const std::vector<float> numbers = normals(static_cast<Index>(count), seed);
      return Doubles(numbers.begin(), numbers.end());
    };
    constexpr double step = 1e-5;
    const auto slope = [&](const auto& out_at) {
      return (dot(out_at(step), dout.numbers()) - dot(out_at(-step), dout.numbers())) / (2 * step);
    };
    const Doubles to_q = along(5, h.q.size()), to_k = along(6, h.k.size()),
                  to_v = along(7, h.v.size());
    const double dq = slope([&](double s) { return h.out(moved(h.q, to_q, s), h.k, h.v); });
    const double dk = slope([&](double s) { return h.out(h.q, moved(h.k, to_k, s), h.v); });
    const double dv = slope([&](double s) { return h.out(h.q, h.k, moved(h.v, to_v, s)); });
    const double size = std::sqrt(static_cast<double>(h.q.size()));
    EXPECT_NEAR(dot(to_q, g.dq.numbers()), dq, 2e-5 * size) << at;
    EXPECT_NEAR(dot(to_k, g.dk.numbers()), dk, 2e-5 * size) << at;
    EXPECT_NEAR(dot(to_v, g.dv.numbers()), dv, 2e-5 * size) << at;
  }
}

TEST(Lsh, AnswersAreThoseOfTheDefinition) {
  for (const Lsh& options :
       {Lsh{.chunk = 8, .rounds = 3, .buckets = {4, 2}}, Lsh{.chunk = 16, .rounds = 1, .after = 1},
        Lsh{.chunk = 64, .rounds = 2, .seed = 3},
        Lsh{.chunk = 8, .rounds = 2, .keys = Lsh::Keys::separate}, Lsh{.chunk = 300, .rounds = 2}})
    for (const char* rest : {"full", "causal", "keys(61) & causal", "documents({30, 40})",
                             "window(9, 2) | tokens({0, 40})"})
      expect_defined(Hashed(options, Pattern::parse(rest), 77));
  // A ring shorter than the neighbourhood, and keys that count once.
  expect_defined(Hashed({.chunk = 40, .rounds = 1, .before = 1, .after = 1}, full(), 77));
  expect_defined(
      Hashed({.chunk = 8, .rounds = 3, .duplicates = Lsh::Duplicates::once}, causal(), 30));
  // Both, for tokens that see only themselves.
  expect_defined(Hashed({.chunk = 10, .before = 2, .after = 1}, causal(), 13));
}

TEST(Lsh, ALonelyTokenCountsAsOftenAsItMeetsItself) {
  const Tensor x = random_tensor({1, 1, 13, 8}, 1);
  const auto first_lse = [&](const Lsh& options) {
    return static_cast<double>(
        attend(x, x, x, {.pattern = lsh(options) & causal()}).lse.numbers()[0]);
  };
  // Two chunks in a ring, four steps: each chunk is met twice.
  EXPECT_EQ(first_lse({.chunk = 10, .buckets = {4}, .before = 2, .after = 1}),
            static_cast<double>(static_cast<float>(-1e5 + std::log(2.0))));
  // Logits so far down are 2^-6 apart.
  EXPECT_NEAR(
      first_lse({.chunk = 10, .rounds = 3, .buckets = {4}, .duplicates = Lsh::Duplicates::once}),
      -1e5, 0.02);
}

TEST(Lsh, AttendLshIsAttendWithTheLeaf) {
  const Tensor qk = random_tensor({2, 3, 100, 16}, 1), v = random_tensor({2, 3, 100, 8}, 2);
  const Lsh options{.chunk = 16, .rounds = 2, .seed = 3};
  EXPECT_SAME_BITS(attend_lsh(qk, v, options), attend(qk, qk, v, {.pattern = lsh(options)}));
  EXPECT_SAME_BITS(attend_lsh(qk, v, options, {.pattern = causal()}),
                   attend(qk, qk, v, {.pattern = causal() & lsh(options)}));
  expect_refused([&] { attend_lsh(qk, v, {.keys = Lsh::Keys::separate}); },
                 {"attend_lsh", "separate", "shared"});
}

TEST(Lsh, BitsDoNotDependOnThreads) {
  const Tensor q = random_tensor({2, 3, 333, 16}, 1), v = random_tensor({2, 3, 333, 16}, 2);
  const Attention how{.pattern = lsh({.chunk = 16, .rounds = 3}) & causal()};
  const Attended one = attend(q, q, v, how, Context(1)), three = attend(q, q, v, how, Context(3));
  EXPECT_SAME_BITS(one, three);
  EXPECT_SAME_BITS(one,
                   attend(q, q, v, how, Context(7)));  // more threads than heads: they share one
  EXPECT_SAME_BITS(attend_backward(v, q, q, v, one, how, Context(1)),
                   attend_backward(v, q, q, v, one, how, Context(3)));
  EXPECT_SAME_BITS(attend_backward(v, q, q, v, one, how, Context(1)),
                   attend_backward(v, q, q, v, one, how, Context(7)));
}

/// Two heads of 600 tokens whose rows are 16 kB apart.
struct FarRows {
  static constexpr Index tokens = 600, dim = 8, gap = 4000;
  std::vector<float> numbers = std::vector<float>(tokens * gap);
  MutableView view{numbers, {1, 2, tokens, dim}, {tokens * gap, dim, gap, 1}};

  explicit FarRows(const Tensor& from) {
    for (Index head = 0; head < 2; ++head)
      for (Index i = 0; i < tokens; ++i)
        std::copy_n(View(from).row(0, head, i), dim, view.row(0, head, i));
  }
  Tensor close() const {
    Tensor to({1, 2, tokens, dim});
    for (Index head = 0; head < 2; ++head)
      for (Index i = 0; i < tokens; ++i)
        std::copy_n(view.row(0, head, i), dim, to.data() + (head * tokens + i) * dim);
    return to;
  }
};

TEST(Lsh, RowsWithLargeStridesGiveTheSameBits) {
  const Shape shape{1, 2, FarRows::tokens, FarRows::dim};
  const Tensor q = random_tensor(shape, 1), v = random_tensor(shape, 2),
               dout = random_tensor(shape, 3);
  const FarRows far_q(q), far_v(v), far_dout(dout);
  const Attention how{.pattern = lsh({.chunk = 16, .rounds = 3}) & causal()};
  const Attended want = attend(q, q, v, how);
  const Gradients slopes = attend_backward(dout, q, q, v, want, how);
  const Tensor zeros(shape);
  for (const Index threads : {1, 2, 3}) {
    const Context context(threads);
    FarRows out(zeros), dq(zeros), dk(zeros), dv(zeros);
    Attended got = attend_into(out.view, far_q.view, far_q.view, far_v.view, how, context);
    attend_backward_into({dq.view, dk.view, dv.view}, far_dout.view, far_q.view, far_q.view,
                         far_v.view, {out.view, got.rows}, how, context);
    got.out = out.close();
    EXPECT_SAME_BITS(got, want);
    Gradients gradients;
    gradients.dq = dq.close();
    gradients.dk = dk.close();
    gradients.dv = dv.close();
    EXPECT_SAME_BITS(gradients, slopes);
  }
}

TEST(Lsh, SeparateKeysOfOneChunkArePlainAttention) {
  // However large the logits are.
  for (const float size : {1.0f, 30.0f, 3000.0f}) {
    Tensor q = random_tensor({1, 2, 50, 8}, 1), k = random_tensor({1, 2, 50, 8}, 2);
    for (float& x : q.numbers()) x *= size;
    for (float& x : k.numbers()) x *= size;
    const Tensor v = random_tensor({1, 2, 50, 8}, 3);
    const Attended got =
        attend(q, k, v, {.pattern = lsh({.chunk = 64, .keys = Lsh::Keys::separate})});
    const Attended want = attend(q, k, v);
    for (std::size_t i = 0; i < got.out.numbers().size(); ++i)
      ASSERT_NEAR(got.out.numbers()[i], want.out.numbers()[i], 1e-6) << size;
  }
}

TEST(Lsh, NanComesOutAndEmptyCallsWork) {
  const Tensor q = random_tensor({1, 1, 60, 8}, 1), v = random_tensor({1, 1, 60, 8}, 2);
  Tensor k = random_tensor({1, 1, 60, 8}, 3);
  at(k, 0, 0, 17, 2) = std::numeric_limits<float>::quiet_NaN();
  const Pattern near =
      lsh({.chunk = 8, .rounds = 2, .before = 0, .keys = Lsh::Keys::separate}) & window(1, 1);
  const Attended got = attend(q, k, v, {.pattern = near});
  const std::shared_ptr<const LshOrder> order = got.rows.order;
  for (Index i = 0; i < 60; ++i) {
    bool meets = false;  // the NaN key, in a chunk of either round
    for (Index a = 0; a < order->sorted_count(); ++a)
      for (Index b = a / 8 * 8; b < a / 8 * 8 + 8; ++b)
        meets |= order->queries(0)[a] == i && order->keys(0)[b] == 17 && std::abs(i - 17) <= 1;
    EXPECT_EQ(std::isnan(got.out.numbers()[static_cast<std::size_t>(i * 8)]), meets) << i;
  }
  for (const Shape& shape : {Shape{1, 2, 0, 8}, Shape{0, 2, 9, 8}, Shape{2, 1, 1, 8}}) {
    const Tensor x(shape);
    const Attended y = attend(x, x, x, {.pattern = lsh({.chunk = 4})});
    attend_backward(x, x, x, x, y, {.pattern = lsh({.chunk = 4})});
  }
}

TEST(Lsh, DropoutDiffersFromHeadToHead) {
  Tensor q({2, 2, 64, 8});
  const Tensor one = random_tensor({1, 1, 64, 8}, 1);
  for (Index i = 0; i < q.elements(); ++i) q.data()[i] = one.data()[i % one.elements()];
  const Attended y = attend(q, q, q, {.pattern = lsh({.chunk = 64}), .dropout = {.rate = 0.5}});
  for (std::size_t batch_head = 1; batch_head < 4; ++batch_head)
    EXPECT_NE(different_bits("head", y.out.numbers().subspan(0, 512),
                             y.out.numbers().subspan(batch_head * 512, 512)),
              "");
}

TEST(Lsh, MistakesAreNamed) {
  const Tensor q = random_tensor({1, 2, 100, 8}, 1), k = random_tensor({1, 1, 100, 8}, 2);
  EXPECT_THROW(attend(q, k, k, {.pattern = lsh({})}), std::invalid_argument);
  EXPECT_THROW(attend(q, q, q, {.pattern = lsh({}) | causal()}), std::invalid_argument);
  EXPECT_THROW(attend(q, q, q, {.pattern = lsh({}) & lsh({})}), std::invalid_argument);
  EXPECT_THROW(attend(q, q, q, {.pattern = lsh({}), .bias = alibi(2)}), std::invalid_argument);
  EXPECT_THROW(attend(q, q, q, {.pattern = lsh({}), .rotations = q.view()}), std::invalid_argument);
  EXPECT_THROW(Plan(lsh({}), {100, 100}), std::invalid_argument);
  EXPECT_THROW(attend(q, q, q, {.rotations = q.view()}), std::invalid_argument);
  EXPECT_THROW(lsh_pairs({.chunk = 0}, 10), std::invalid_argument);
  const Tensor wide({1, 1, 70, 600});
  EXPECT_THROW(attend(wide, wide, wide, {.pattern = lsh({})}), std::invalid_argument);
  // The order of another chunk.
  const Attended y = attend(q, q, q, {.pattern = lsh({.chunk = 8})});
  EXPECT_THROW(attend_backward(q, q, q, q, y, {.pattern = lsh({.chunk = 16})}),
               std::invalid_argument);
}

}  // namespace
}  // namespace rapt::test
