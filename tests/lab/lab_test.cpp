#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "lab/charts/chart.h"
#include "lab/experiments/head_kind.h"
#include "lab/experiments/numbers.h"
#include "lab/experiments/small_training.h"
#include "lab/experiments/softmax_theory.h"
#include "lab/section_figures.h"

// Expected numbers are those of spec-positions A4 and A7 to A9, computed there by other means.
namespace rapt::lab {
namespace {

const Context context(2);
const Lab quiet{context, 1, [](double) {}};

double relative_error(double found, double expected) { return std::fabs(found / expected - 1); }

TEST(LabTheory, EqualsTheTableOfNormalLogits) {
  const struct {
    Index keys;
    double sigma, log_sum, entropy, collision, jacobian, inverse_largest;
  } rows[] = {{64, 0.125, 4.16657, 4.15120, 0.015867, 0.12493, 48.1836},
              {64, 1, 4.64594, 3.68475, 0.038804, 0.18461, 10.6130},
              {64, 4, 9.97770, 1.30814, 0.458152, 0.31747, 2.0043},
              {64, 8, 19.02184, 0.57559, 0.711777, 0.27037, 1.3819},
              {512, 0.125, 6.24612, 6.23053, 0.001984, 0.04449, 353.0705},
              {512, 0.5, 6.36305, 6.11367, 0.002506, 0.04996, 128.5909},
              {512, 1, 6.73666, 5.74189, 0.005235, 0.07157, 42.4287},
              {512, 2, 8.20460, 4.39014, 0.046386, 0.17810, 9.5303},
              {512, 4, 13.06889, 2.06513, 0.312265, 0.29987, 2.7962},
              {512, 8, 24.72567, 0.81865, 0.626453, 0.28849, 1.5630},
              {512, 16, 48.87319, 0.35690, 0.810483, 0.22899, 1.2287},
              {4096, 1, 8.81756, 7.81822, 0.000662, 0.02570, 188.1181},
              {4096, 8, 29.47881, 1.06029, 0.555961, 0.29633, 1.7536}};
  for (const auto& row : rows) {
    SCOPED_TRACE(testing::Message() << row.keys << " keys, sigma " << row.sigma);
    const SoftmaxTheory theory = softmax_theory(row.keys, row.sigma);
    EXPECT_NEAR(theory.log_sum, row.log_sum, 2e-5);
    EXPECT_NEAR(theory.entropy, row.entropy, 2e-5);
    EXPECT_NEAR(theory.collision, row.collision, 1e-6);
    EXPECT_NEAR(std::sqrt(theory.jacobian_square), row.jacobian, 1e-5);
    EXPECT_LT(relative_error(theory.inverse_largest, row.inverse_largest), 5e-5);
  }
}

TEST(LabTheory, EqualsTheTableOfNormalQueriesAndKeys) {
  const struct {
    Index dim;
    double power;  // the scale is d^-power
    double entropy, collision, jacobian, inverse_largest;
  } rows[] = {
      {16, 0, 2.2019, 0.29798, 0.29266, 3.092},    {64, 0, 0.8331, 0.62244, 0.28876, 1.575},
      {256, 0, 0.3582, 0.80994, 0.22921, 1.230},   {16, 0.5, 5.7427, 0.005524, 0.07310, 47.16},
      {64, 0.5, 5.7421, 0.005305, 0.07196, 43.57}, {128, 0.5, 5.7420, 0.005269, 0.07176, 43.00},
      {16, 1, 6.2071, 0.002079, 0.04555, 252.6},   {64, 1, 6.2305, 0.001984, 0.04450, 353.8},
      {128, 1, 6.2344, 0.001968, 0.04432, 393.2}};
  for (const auto& row : rows) {
    SCOPED_TRACE(testing::Message() << "d = " << row.dim << ", scale d^-" << row.power);
    const SoftmaxTheory theory =
        attention_theory(512, row.dim, std::pow(static_cast<double>(row.dim), -row.power));
    EXPECT_NEAR(theory.entropy, row.entropy, 2e-4);
    EXPECT_LT(relative_error(theory.collision, row.collision), 1e-3);
    EXPECT_LT(relative_error(std::sqrt(theory.jacobian_square), row.jacobian), 1e-3);
    EXPECT_LT(relative_error(theory.inverse_largest, row.inverse_largest), 1e-3);
  }
}

TEST(LabTheory, KnowsWhereEntropyStandsStillAsKeysAreAdded) {
  const double critical = std::sqrt(std::log(512.0));
  const struct {
    Index keys;
    double soft, soft_log, sharp, sharp_log;
  } rows[] = {{128, 4.3656, 4.5548, 2.6330, 3.2639},
              {512, 5.7419, 5.7419, 3.6366, 3.6366},
              {1024, 6.4333, 6.3171, 4.1877, 3.7520},
              {4096, 7.8182, 7.4308, 5.3776, 3.8677}};
  for (const auto& row : rows) {
    const double factor = std::log(static_cast<double>(row.keys)) / std::log(512.0);
    EXPECT_NEAR(softmax_theory(row.keys, 1).entropy, row.soft, 1e-4) << row.keys;
    EXPECT_NEAR(softmax_theory(row.keys, factor).entropy, row.soft_log, 1e-4) << row.keys;
    EXPECT_NEAR(softmax_theory(row.keys, critical).entropy, row.sharp, 1e-4) << row.keys;
    EXPECT_NEAR(softmax_theory(row.keys, critical * factor).entropy, row.sharp_log, 1e-4)
        << row.keys;
  }
}

TEST(LabTheory, HasTheLimitsOfTheJacobian) {
  EXPECT_NEAR(uniform_jacobian(512), 0.0441510, 1e-7);
  EXPECT_NEAR(uniform_jacobian(2), 0.5, 1e-15);
  // x = h / sigma with h = 3.177014 for 512 keys.
  for (const double sigma : {8.0, 16.0, 64.0}) {
    const double x = 3.177014 / sigma;
    EXPECT_NEAR(saturated_jacobian(512, sigma), std::sqrt(x * (1 - x) / 3), 1e-6);
    const double exact = std::sqrt(softmax_theory(512, sigma).jacobian_square);
    EXPECT_LT(relative_error(saturated_jacobian(512, sigma), exact), sigma < 10 ? 0.04 : 0.02);
  }
}

TEST(LabTheory, HasTheGradientsOfQueries) {
  // Root mean squares of 20,000 rows by Monte Carlo.
  const struct {
    Index dim;
    double none, root, inverse;
  } rows[] = {{16, 9.25, 0.599, 0.0912},
              {64, 18.6, 0.579, 0.0445},
              {256, 29.1, 0.575, 0.0221},
              {1024, 42.8, 0.572, 0.0110}};
  for (const auto& row : rows) {
    const double d = static_cast<double>(row.dim);
    EXPECT_LT(relative_error(query_gradient_theory(512, row.dim, 64, 1), row.none), 0.04) << d;
    EXPECT_LT(relative_error(query_gradient_theory(512, row.dim, 64, 1 / std::sqrt(d)), row.root),
              0.02)
        << d;
    EXPECT_LT(relative_error(query_gradient_theory(512, row.dim, 64, 1 / d), row.inverse), 0.01)
        << d;
  }
  // Soft logits: scale^2 * value_dim * (d + s) * e^s / n with the variance s.
  const double s = 1.0 / 64, closed = std::sqrt(64 * (64 + s) * std::exp(s) / 512) / 64;
  EXPECT_LT(relative_error(query_gradient_theory(512, 64, 64, 1.0 / 64), closed), 2e-3);
}

/// Rows of two tables with the same key fields, by pairs.
template <class Check>
void with_pairs(const Json& measured, const Json& theory, const std::vector<std::string>& keys,
                const Check& check) {
  Index found = 0;
  for (const Json& seen : measured)
    for (const Json& known : theory) {
      bool same = true;
      for (const std::string& key : keys) same = same && seen[key] == known[key];
      if (!same) continue;
      check(seen, known);
      ++found;
    }
  EXPECT_EQ(found, std::ssize(theory));
}

TEST(LabScale, IsMeasuredAsTheorySays) {
  const Section section = why_square_root(quiet);
  const Json& data = section.figures[0].data;
  EXPECT_EQ(data["measured"].size(), 24u);
  with_pairs(
      data["measured"], data["theory"], {"d", "scale"}, [](const Json& seen, const Json& known) {
        SCOPED_TRACE(seen.dump());
        const double d = seen["d"].get<double>();
        const auto error = [&](const char* field) {
          return relative_error(seen[field].get<double>(), known[field].get<double>());
        };
        // 512 keys and 2,048 queries span d dimensions: so many independent lengths there
        // are.
        const double deviation = std::sqrt(2 / (512 * d)) + std::sqrt(2 / (2048 * d));
        EXPECT_LT(error("variance"), 4 * deviation);
        EXPECT_LT(error("entropy"), seen["scale"] == "none" ? 0.06 : 0.02);
        EXPECT_LT(error("largest"), 0.1);  // the same few keys are the largest for many queries
      });
}

TEST(LabScale, ShowsWhatHalfPrecisionLoses) {
  const Json bits = resolution_figure(quiet).data["rows"];
  // One row of 4,096 keys at d = 128: 103 and 840 values for another seed.
  for (const Json& row : bits)
    if (row["d"] == 128 && row["scale"] != "none") {
      EXPECT_LT(relative_error(row["values"].get<double>(), row["scale"] == "1/d" ? 103 : 840),
                0.25)
          << row;
    }
  // 1/(d n) decides: 99.8 % for 512 keys and d = 1024.
  const Json small = underflow_figure(quiet).data["rows"];
  for (const Json& row : small)
    if (row["d"] == 512 && row["scale"] == "1/d") {
      EXPECT_NEAR(row["part"].get<double>(), 0.998, 0.003);
    }
}

TEST(LabScale, SoftmaxUnderTheSliderIsSoftmax) {
  for (const double factor : {0.0, 1.0, 8.0}) {
    const std::vector<float> logits = {0.5f, -1.25f, 2, 0.25f};
    const std::vector<double> found = softmax_row(logits, factor, context);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(factor * static_cast<double>(logit));
    for (std::size_t i = 0; i < logits.size(); ++i)
      EXPECT_NEAR(found[i], std::exp(factor * static_cast<double>(logits[i])) / sum, 1e-6);
  }
}

TEST(LabGradients, SlopesOfSoftmaxAreWhatCalculusSays) {
  const Json cells = jacobian_figure(quiet).data["cells"];
  const Tensor drawn = normals({12}, quiet.seed + 2);
  const std::vector<float> logits(drawn.data(), drawn.data() + 12);
  std::map<double, std::vector<double>> rows;
  std::map<std::tuple<double, Index, Index>, double> slopes;
  for (const Json& cell : cells) {
    const double scale = cell["scale"];
    const Index i = cell["probability of key"], j = cell["score of key"];
    if (!rows.contains(scale)) rows[scale] = softmax_row(logits, scale, context);
    const double pi = rows[scale][static_cast<std::size_t>(i)],
                 pj = rows[scale][static_cast<std::size_t>(j)];
    const double slope = slopes[{scale, i, j}] = cell["slope"].get<double>();
    EXPECT_NEAR(slope, pi * ((i == j ? 1 : 0) - pj), 1e-6) << cell;
    // Its four zeros: p = 0 or 1 on the diagonal, either one 0 beside it.
    if (pi < 1e-9 || (i == j && pi > 1 - 1e-9) || (i != j && pj < 1e-9)) {
      EXPECT_NEAR(slope, 0, 1e-8) << cell;
    }
  }
  for (const auto& [at, slope] : slopes) {
    const auto& [scale, i, j] = at;
    EXPECT_NEAR(slope, (slopes[{scale, j, i}]), 1e-6);
  }
}

TEST(LabGradients, NormOfTheSlopesFollowsTheory) {
  const Json data = norm_figure(quiet).data;
  Json squares = Json::array();
  for (const Json& row : data["measured"])
    if (row["what"] == "root mean square") squares.push_back(row);
  with_pairs(squares, data["theory"], {"deviation"}, [](const Json& seen, const Json& known) {
    const double sigma = seen["deviation"];
    EXPECT_LT(relative_error(seen["norm"].get<double>(), known["norm"].get<double>()),
              sigma < 8 ? 0.03 : 0.25)
        << seen;
  });
  // The median row: alive at a deviation of 8, dead at 64.
  for (const Json& row : data["measured"]) {
    if (row["what"] != "median") continue;
    const double sigma = row["deviation"], norm = row["norm"];
    if (std::fabs(sigma - 8) < 0.1) {
      EXPECT_NEAR(norm, 0.28, 0.05);
    }
    if (std::fabs(sigma - 64) < 0.1) {
      EXPECT_LT(norm, 1e-3);
    }
  }
}

TEST(LabGradients, MedianDiesWhileTheMeanGrows) {
  const std::vector<Figure> figures = gradient_figures(quiet);
  const Json& data = figures[0].data;
  // Medians by Monte Carlo, in the order none, 1/sqrt(d), 1/d.
  const std::map<Index, std::array<double, 3>> medians = {
      {16, {6.73, 0.532, 0.0881}}, {64, {9.67, 0.541, 0.0440}}, {256, {4.29, 0.546, 0.0219}}};
  const std::vector<std::string> names = {"none", "1/√d", "1/d"};
  for (const Json& row : data["measured"]) {
    const auto known = medians.find(row["d"].get<Index>());
    if (row["measure"] != "median" || known == medians.end()) continue;
    for (std::size_t scale = 0; scale < names.size(); ++scale)
      if (row["scale"] == names[scale]) {
        // Without a scale lengths are spread over many powers of ten.
        const double bound = scale == 0 ? 0.25 : 0.05;
        EXPECT_LT(relative_error(row["length"].get<double>(), known->second[scale]), bound) << row;
      }
  }
  for (const Figure& figure : figures)
    with_pairs(figure.data["measured"], figure.data["theory"], {"d", "scale", "measure"},
               [](const Json& seen, const Json& known) {
                 const double bound = seen["scale"] == "none" ? 0.35 : 0.1;
                 EXPECT_LT(
                     relative_error(seen["length"].get<double>(), known["length"].get<double>()),
                     bound)
                     << seen;
               });
}

TEST(LabLength, EntropyIsMeasuredAsTheorySays) {
  const Json data = length_entropy_figure(quiet).data;
  with_pairs(
      data["measured"], data["theory"], {"n", "scale"}, [](const Json& seen, const Json& known) {
        EXPECT_NEAR(seen["entropy"].get<double>(), known["entropy"].get<double>(), 0.15) << seen;
      });
}

TEST(LabLength, WindowsReachOneWindowPerLayer) {
  std::map<std::string, Index> farthest;
  const Json rows = reach_figure(quiet).data["rows"];
  for (const Json& row : rows) {
    Index& most = farthest[row["layers"].get<std::string>()];
    most = std::max(most, row["distance"].get<Index>());
  }
  const std::map<std::string, Index> expected = {
      {"1 layer", 16}, {"2 layers", 32}, {"4 layers", 64}, {"8 layers", 128}};
  EXPECT_EQ(farthest, expected);
}

TEST(LabLength, OnlyPositionsTellTheOrder) {
  const Json rows = permutation_figure(quiet).data["rows"];
  EXPECT_EQ(rows.size(), 6u);
  for (const Json& row : rows) {
    const double difference = row["difference"];
    if (row["positions"] == "none")
      EXPECT_LT(difference, 1e-5);
    else
      EXPECT_GT(difference, 1e-3) << row;
  }
}

TEST(LabSparsity, KeptProbabilityIsASumOfProbabilities) {
  constexpr Index tokens = 96, dim = 16;
  for (const HeadKind& head : head_kinds(tokens, dim, 3)) {
    const double found = mass_within(head, causal(), causal() & window(7, 0), context);
    double sum = 0;
    for (Index i = 0; i < tokens; ++i) {
      double near = 0, all = 0;
      for (Index j = 0; j <= i; ++j) {
        double score = 0;
        for (Index c = 0; c < dim; ++c)
          score += static_cast<double>(head.q.data()[i * dim + c]) *
                   static_cast<double>(head.k.data()[j * dim + c]);
        const double p = std::exp(score / std::sqrt(static_cast<double>(dim)));
        all += p;
        if (i - j <= 7) near += p;
      }
      sum += near / all;
    }
    EXPECT_NEAR(found, sum / tokens, 1e-5) << head.name;
  }
}

TEST(LabLanguage, HasTheEntropyThatItClaims) {
  const SmallLanguage language(4);
  for (std::int32_t before = 0; before < SmallLanguage::vocabulary; before += 5)
    for (std::int32_t last = 0; last < SmallLanguage::vocabulary; last += 3) {
      double sum = 0;
      for (std::int32_t next = 0; next < SmallLanguage::vocabulary; ++next)
        sum += language.probability(before, last, next);
      EXPECT_NEAR(sum, 1, 1e-12);
    }
  const std::vector<std::int32_t> text = language.text(40000, 1);
  std::map<std::int32_t, double> seen;
  double all = 0;
  for (std::size_t i = 2; i < text.size(); ++i)
    if (text[i - 2] == text[5] && text[i - 1] == text[6]) {
      seen[text[i]] += 1;
      all += 1;
    }
  for (const auto& [next, count] : seen)
    EXPECT_NEAR(count / all, language.probability(text[5], text[6], next), 5 / std::sqrt(all));
}

}  // namespace
}  // namespace rapt::lab
