#include "rapt/models/heads.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/memory_use.h"
#include "formats/config/json.h"
#include "support/models.h"
#include "support/refused.h"
#include "support/truth/definition.h"

namespace rapt::test {
using namespace detail;
namespace {

/// Probabilities of one head by the definition, and the deviations of its logits.
struct TrueHead {
  Index tokens;
  Doubles p;  // [tokens, tokens]
  double logit_std = 0;
  double at(Index i, Index j) const { return p[static_cast<std::size_t>(i * tokens + j)]; }
};

/// Values that are the unit vectors make the output the probabilities.
std::vector<TrueHead> true_heads(const AttentionCall& call) {
  const Index tokens = call.q.tokens();
  Tensor units({1, call.k.heads(), tokens, tokens});
  for (Index head = 0; head < call.k.heads(); ++head)
    for (Index j = 0; j < tokens; ++j) units.data()[(head * tokens + j) * tokens + j] = 1;
  Attention how = call.how;
  how.plan = nullptr;
  const Defined defined = define(problem(call.q, call.k, units.view(), how));
  std::vector<TrueHead> heads;
  for (Index head = 0; head < call.q.heads(); ++head) {
    const auto from = defined.out.value.begin() + head * tokens * tokens;
    TrueHead made{tokens, Doubles(from, from + tokens * tokens)};
    for (Index i = 0; i < tokens; ++i)
      made.logit_std +=
          std::sqrt(defined.logit_variance.value[static_cast<std::size_t>(head * tokens + i)]) /
          static_cast<double>(tokens);
    heads.push_back(std::move(made));
  }
  return heads;
}

std::vector<TrueHead> true_heads(Transformer& model, const Sample& sample) {
  std::vector<TrueHead> heads;
  PassOptions options;
  options.attention = [&](AttentionCall& call) {
    if (call.layer.ends_with(".cross_attention")) return;
    for (TrueHead& head : true_heads(call)) heads.push_back(std::move(head));
  };
  Tape tape(Tape::Mode::forward);
  sample.sources.ids.empty() ? model.forward(tape, sample.tokens, options)
                             : model.forward(tape, sample.tokens, sample.sources, options);
  return heads;
}

template <class Of>
double mean_over(const TrueHead& head, const Of& of) {
  double sum = 0;
  for (Index i = 0; i < head.tokens; ++i) sum += of(i);
  return sum / static_cast<double>(head.tokens);
}

template <class Of>
double row_sum(const TrueHead& head, Index i, const Of& of) {
  double sum = 0;
  for (Index j = 0; j < head.tokens; ++j) sum += of(head.at(i, j), j);
  return sum;
}

double jacobian_norm(const TrueHead& head, Index i) {
  double squares = 0;
  for (Index j = 0; j < head.tokens; ++j)
    for (Index k = 0; k < head.tokens; ++k) {
      const double x = (j == k ? head.at(i, j) : 0) - head.at(i, j) * head.at(i, k);
      squares += x * x;
    }
  return std::sqrt(squares);
}

double largest_of(const TrueHead& head, Index i) {
  double most = 0;
  for (Index j = 0; j < head.tokens; ++j) most = std::max(most, head.at(i, j));
  return most;
}

double within(const TrueHead& head, Index distance, Index pinned) {
  return mean_over(head, [&](Index i) {
    return row_sum(head, i, [&](double p, Index j) {
      return std::abs(i - j) <= distance || j < pinned || i < pinned ? p : 0;
    });
  });
}

/// Probabilities in f32 are good to some 30 units of rounding; so are their means.
constexpr double near = 1e-5;

void expect_same(const HeadStats& got, const TrueHead& want, const std::string& where) {
  const auto same = [&](const char* what, double a, double b) {
    EXPECT_NEAR(a, b, near * (1 + std::fabs(b))) << what << " of " << where;
  };
  same("entropy", got.entropy, mean_over(want, [&](Index i) {
         return row_sum(want, i, [](double p, Index) { return p > 0 ? -p * std::log(p) : 0; });
       }));
  same("largest", got.largest, mean_over(want, [&](Index i) { return largest_of(want, i); }));
  same("saturated", got.saturated,
       mean_over(want, [&](Index i) { return largest_of(want, i) > 0.99 ? 1 : 0; }));
  same("logit_std", got.logit_std, want.logit_std);
  same("jacobian", got.jacobian_norm,
       mean_over(want, [&](Index i) { return jacobian_norm(want, i); }));
  same("sink", got.sink_mass, mean_over(want, [&](Index i) { return want.at(i, 0); }));
  same("distance", got.distance, mean_over(want, [&](Index i) {
         return row_sum(
             want, i, [&](double p, Index j) { return p * static_cast<double>(std::abs(i - j)); });
       }));
}

void expect_same_reach(const HeadStats& got, const TrueHead& want, const HeadReport& report,
                       const std::string& where) {
  for (std::size_t b = 0; b < report.distances.size(); b += 7) {
    const Index distance = report.distances[b];
    EXPECT_NEAR(got.within[b], within(want, distance, 0), near) << distance << " " << where;
    EXPECT_NEAR(got.within_pinned[b], within(want, distance, report.pinned), near)
        << distance << " " << where;
  }
  const auto reached = [&](Index reach, double share) {
    EXPECT_GE(within(want, reach, 0), share - near) << where;
    const auto at = std::ranges::find(report.distances, reach);
    ASSERT_NE(at, report.distances.end());
    const double before = at == report.distances.begin() ? 0 : within(want, *(at - 1), 0);
    EXPECT_LT(before, share + near) << where;
  };
  reached(got.reach50, 0.5);
  reached(got.reach90, 0.9);
  reached(got.reach99, 0.99);
}

void expect_same_favourite(const HeadStats& got, const TrueHead& want, const std::string& where) {
  double most = 0;
  for (Index j = 0; j < want.tokens; ++j)
    most = std::max(most, mean_over(want, [&](Index i) { return want.at(i, j); }));
  EXPECT_NEAR(got.favourite_mass, most, near) << where;
  EXPECT_NEAR(mean_over(want, [&](Index i) { return want.at(i, got.favourite); }), most, near);
}

double cosine(const TrueHead& a, const TrueHead& b) {
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.p.size(); ++i)
    ab += a.p[i] * b.p[i], aa += a.p[i] * a.p[i], bb += b.p[i] * b.p[i];
  return ab / std::sqrt(aa * bb);
}

TEST(Heads, AreThoseOfTheDefinitionForEveryKindOfModel) {
  for (const ModelCase& c : model_cases()) {
    if (hashes(c.config)) continue;
    Transformer model = noisy_model(c.config);
    const Sample sample = sample_of(c.config, {24});
    const std::vector<TrueHead> want = true_heads(model, sample);
    if (want.empty()) continue;  // Longformer's
    const HeadReport got =
        heads(model, sample.tokens, sample.sources, {.trials = false}, Context(2));
    ASSERT_EQ(got.heads.size(), want.size()) << c.name;
    for (std::size_t h = 0; h < want.size(); ++h) {
      const std::string where = c.name + ", head " + std::to_string(h);
      const HeadStats& head = got.heads[h];
      expect_same(head, want[h], where);
      expect_same_reach(head, want[h], got, where);
      expect_same_favourite(head, want[h], where);
      const std::size_t first = h - static_cast<std::size_t>(head.head);
      for (std::size_t other = 0; other < head.similarity.size(); ++other)
        if (c.config.softcap > 0)
          EXPECT_TRUE(std::isnan(head.similarity[other])) << where;
        else
          EXPECT_NEAR(head.similarity[other], cosine(want[h], want[first + other]), near) << where;
      for (std::size_t i = 0; i < want[h].p.size(); ++i)
        ASSERT_NEAR(head.map.data()[i], want[h].p[i], near) << where;
    }
  }
}

TEST(Heads, OfALongTextHaveCoarserMapsAndDistances) {
  ModelConfig config = tiny_config();
  config.layers = 1;
  config.max_positions = 600;
  Transformer model = noisy_model(config);
  const Sample sample = sample_of(config, {600});
  const std::vector<TrueHead> want = true_heads(model, sample);
  const HeadReport got = heads(model, sample.tokens, {}, {.trials = false});
  ASSERT_EQ(got.map_tile, 3);
  EXPECT_LT(got.distances.size(), 253u);
  EXPECT_EQ(got.distances.back(), 599);
  for (const Index power : {1, 2, 4, 64, 128, 256, 512})
    EXPECT_TRUE(std::ranges::binary_search(got.distances, power)) << power;
  for (std::size_t h = 0; h < want.size(); ++h) {
    const HeadStats& head = got.heads[h];
    const std::string where = "head " + std::to_string(h);
    expect_same(head, want[h], where);
    expect_same_reach(head, want[h], got, where);
    EXPECT_GT(head.hashed_mass.value(), 0);
    EXPECT_LT(head.hashed_keys.value(), 1);
    ASSERT_EQ(head.map.shape(), (Shape{200, 200}));
    for (Index cell : {Index{0}, Index{17 * 200 + 5}, Index{199 * 200 + 199}}) {
      double sum = 0;
      for (Index i = 0; i < 3; ++i)
        for (Index j = 0; j < 3; ++j) sum += want[h].at(cell / 200 * 3 + i, cell % 200 * 3 + j) / 3;
      EXPECT_NEAR(head.map.data()[cell], sum, near) << where;
    }
  }
}

Index peak_of(Index tokens) {
  ModelConfig config = tiny_config();
  config.layers = config.heads = 1;
  config.max_positions = tokens;
  Transformer model = noisy_model(config);
  const Sample sample = sample_of(config, {tokens});
  const Index before = memory_in_use();
  forget_memory_peak();
  heads(model, sample.tokens, {}, {.map_size = 64, .trials = false}, Context(2));
  return memory_peak() - before;
}

TEST(Heads, TakeMemoryThatGrowsWithTheTextAndNotWithItsSquare) {
  EXPECT_LT(peak_of(4096), 2.2 * static_cast<double>(peak_of(2048)));
}

/// A model with these patterns from the start, and what it makes of the text.
double loss_with(const ModelConfig& config, const std::vector<Pattern>& patterns,
                 const Tokens& tokens) {
  ModelConfig changed = config;
  changed.patterns = patterns;
  Transformer model = noisy_model(changed);
  Tape tape(Tape::Mode::forward);
  std::vector<std::int32_t> targets(tokens.ids.begin() + 1, tokens.ids.end());
  targets.push_back(-1);
  const TokenLoss loss = model.loss(tape, model.forward(tape, tokens), targets);
  return loss.total / static_cast<double>(loss.counted);
}

TEST(Heads, TryPatternsAsIfTheModelHadBeenMadeWithThem) {
  ModelConfig config = tiny_config();
  config.layers = 3;
  Transformer model = noisy_model(config);
  const Tokens tokens = random_tokens(*config.vocab_size, {96}, 3);
  const HeadReport report = heads(model, tokens);
  EXPECT_NEAR(report.loss.value(), loss_with(config, {causal()}, tokens), 1e-6);
  ASSERT_GE(report.trials.size(), 4u);
  for (const PatternTrial& trial : report.trials) {
    EXPECT_NEAR(trial.loss.value(), loss_with(config, trial.patterns, tokens), 1e-5) << trial.name;
    EXPECT_LE(trial.worst, trial.mass);
    EXPECT_LT(trial.pairs, 1);
  }
  const PatternTrial& first = report.trials.front();
  EXPECT_EQ(first.window, 64);
  double pairs = 0;
  for (Index i = 0; i < 96; ++i)
    for (Index j = 0; j <= i; ++j) pairs += i - j <= 64 || j < 4 ? 1 : 0;
  EXPECT_NEAR(first.pairs, pairs / (96 * 97 / 2), 1e-12);
}

Pretrained bytes_model(const ModelConfig& config) {
  return {.family = "rapt", .model = noisy_model(config), .tokenizer = Tokenizer::bytes()};
}

ModelConfig bytes_config() {
  ModelConfig config = tiny_config();
  config.vocab_size = 258;
  config.positions = ModelConfig::Positions::learned;
  config.max_positions = 40;
  return config;
}

TEST(Heads, RefuseWhatCannotBeMeasured) {
  Transformer model = noisy_model(tiny_config());
  expect_refused([&] { heads(model, Tokens::one({1})); }, {"1 tokens", "at least 2"});
  expect_refused([&] { heads(model, Tokens{{1, 2, 3, 4}, {2, 2}}); }, {"2 sequences"});
  expect_refused([&] { heads(model, Tokens::one({1, 2}), Tokens::one({1, 2})); }, {"none"});
  expect_refused([&] { heads(model, Tokens::one({1, 2}), {}, {.map_size = 300}); }, {"300", "256"});
  ModelConfig hashed = tiny_config();
  hashed.patterns = {Pattern::parse("causal & lsh(4)")};
  hashed.positions = ModelConfig::Positions::none;
  hashed.shared_query_key = ModelConfig::SharedKeys::hashed;
  Transformer hashes = noisy_model(hashed);
  expect_refused([&] { heads(hashes, Tokens::one({1, 2, 3})); }, {"no layer", "hashed"});
}

TEST(Heads, RefuseTextsThatTheModelCannotRead) {
  Pretrained model = bytes_model(bytes_config());
  const auto refused = [&](const HeadReportText& text, const std::vector<std::string>& words) {
    expect_refused([&] { heads(model, text); }, words);
  };
  refused({}, {"empty"});
  refused({.text = "a", .ids = {1}}, {"one of them"});
  refused({.text = std::string(41, 'a')}, {"41 tokens", "reads 40", "a limit of 40"});
  refused({.text = std::string(60, 'a'), .limit = 50}, {"50 tokens", "reads 40"});
  refused({.text = "abc", .target = "d"}, {"encoder-decoder"});
  refused({.ids = {1, 258}}, {"258", "257"});
  model.tokenizer.reset();
  refused({.text = "abc"}, {"tokenizer", "expected ids", "257"});
  EXPECT_EQ(heads(model, {.ids = {1, 2, 3}}, {.map_size = {}, .trials = false}).tokens, 3);
  ModelConfig both = tiny_config();
  both.kind = ModelConfig::Kind::encoder_decoder;
  both.encoder_layers = 1;
  both.vocab_size = 258;
  Pretrained pairs = bytes_model(both);
  expect_refused([&] { heads(pairs, {.text = "abc"}); }, {"expected a target"});
  const HeadReport report = heads(pairs, {.text = "abcd", .target = "ef"});
  EXPECT_EQ(report.sources, 5);  // the end of a text is read too
  EXPECT_EQ(report.tokens, 3);
}

TEST(Heads, ReadTheFirstTokensOfATextUpToALimit) {
  Pretrained model = bytes_model(bytes_config());
  const HeadReport report =
      heads(model, {.text = std::string(100, 'a') + "b", .limit = 40}, {.trials = false});
  EXPECT_EQ(report.tokens, 40);
  EXPECT_EQ(report.texts, std::vector<std::string>(40, "a"));
}

/// Undoes what head_report_page.cpp does, as heads.js does.
std::vector<double> read_map(const std::string& text, const Json& data, std::size_t cells) {
  const std::string levels = data["levels"];
  const double smallest = data["smallest"];
  std::vector<double> map;
  for (const char c : text) {
    const std::string runs = " !#$%&";
    const std::size_t counts[] = {1, 2, 4, 16, 64, 256};
    if (const std::size_t run = runs.find(c); run != std::string::npos)
      map.resize(map.size() + counts[run]);
    else
      map.push_back(std::pow(smallest, 1 - static_cast<double>(levels.find(c)) /
                                               static_cast<double>(levels.size() - 1)));
  }
  EXPECT_EQ(map.size(), cells);
  return map;
}

TEST(HeadReport, PageHoldsEveryProbabilityWithinFourPercent) {
  Pretrained model = bytes_model(bytes_config());
  HeadReport report = heads(model, {.text = "Is </script> <b>a text?"});
  const std::string page = to_html(report);
  EXPECT_EQ(page.find("http:"), page.find("http://www.w3.org/2000/svg"));
  EXPECT_EQ(page.find("https:"), std::string::npos);
  const std::string mark = "<script type=\"application/json\" id=\"data\">";
  const std::size_t start = page.find(mark) + mark.size(), end = page.find("</script>", start);
  const Json data = parse_json(page.substr(start, end - start), "data");
  ASSERT_EQ(data["maps"]["texts"].size(), report.heads.size());
  for (std::size_t h = 0; h < report.heads.size(); ++h) {
    const Tensor& map = report.heads[h].map;
    const std::vector<double> read =
        read_map(data["maps"]["texts"][h], data, static_cast<std::size_t>(map.elements()));
    for (std::size_t i = 0; i < read.size(); ++i) {
      const auto p = static_cast<double>(map.data()[i]);
      EXPECT_NEAR(read[i], p < 1e-3 ? 0 : p, 0.042 * p);
    }
  }
  EXPECT_EQ(data["texts"][3], "<");
}

TEST(HeadReport, JsonHasEveryHeadAndNoMaps) {
  Pretrained model = bytes_model(bytes_config());
  const HeadReport report = heads(model, {.text = "Is this \xff a text?"});
  const Json data = parse_json(to_json(report), "json");
  ASSERT_EQ(data["heads"].size(), report.heads.size());
  EXPECT_FALSE(data.contains("maps"));
  EXPECT_NEAR(data["heads"][1]["entropy"], report.heads[1].entropy, 1e-5);
  EXPECT_TRUE(data["heads"][1]["hashed_mass"].is_null());
  EXPECT_EQ(data["heads"][1]["within"].size(), data["distances"].size());
  EXPECT_EQ(data["trials"].size(), report.trials.size());
}

TEST(Heads, HaveKindsWithNames) {
  EXPECT_EQ(to_string(HeadStats::Kind::neighbour), "neighbour");
  EXPECT_EQ(from_string<HeadStats::Kind>("mixed"), HeadStats::Kind::mixed);
  expect_refused([] { from_string<HeadStats::Kind>("odd"); }, {"\"odd\"", "even or mixed"});
}

TEST(Heads, EndWhenTheirProgressThrows) {
  Transformer model = noisy_model(tiny_config());
  HeadReportOptions options;
  options.progress = [](double done, const std::string&) {
    if (done > 0) throw std::runtime_error("enough");
  };
  EXPECT_THROW(heads(model, Tokens::one({1, 2, 3, 4}), {}, options), std::runtime_error);
}

}  // namespace
}  // namespace rapt::test
