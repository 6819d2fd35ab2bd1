// Sequences in one call, in chunks and token by token.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "rapt/models/transformer.h"
#include "support/engine.h"
#include "support/models.h"
#include "support/network.h"
#include "support/refused.h"
#include "support/truth/bound.h"

namespace rapt::test {
namespace {

/// Feeds sequences to a cache in pieces of `piece` tokens and puts the rows back where forward has
/// them.
Tensor extended(Transformer& model, const Sample& sample, Index piece,
                const ModelCache::Options& options = {}) {
  ModelCache cache(model, options);
  const std::vector<Index>& lengths = sample.tokens.lengths;
  const std::vector<Index> starts = starts_of(lengths);
  std::vector<Index> sequences;
  for (std::size_t i = 0; i < lengths.size(); ++i) sequences.push_back(cache.add());
  if (!sample.sources.ids.empty()) model.encode(sample.sources, cache, sequences);
  const Index width = (model.config().reversible ? 2 : 1) * model.config().hidden_size;
  Tensor all({static_cast<Index>(sample.tokens.ids.size()), width});
  std::vector<Index> done(lengths.size(), 0);
  for (;;) {
    Tokens tokens;
    std::vector<Index> who, rows;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const Index count = std::min(piece, lengths[i] - done[i]);
      if (count == 0) continue;
      for (Index t = 0; t < count; ++t) {
        rows.push_back(starts[i] + done[i] + t);
        tokens.ids.push_back(sample.tokens.ids[static_cast<std::size_t>(rows.back())]);
      }
      tokens.lengths.push_back(count);
      who.push_back(sequences[i]);
      done[i] += count;
    }
    if (who.empty()) return all;
    const Tensor some = model.extend(tokens, cache, who);
    for (std::size_t r = 0; r < rows.size(); ++r)
      std::copy_n(some.data() + static_cast<Index>(r) * some.shape()[1], some.shape()[1],
                  all.data() + rows[r] * some.shape()[1]);
  }
}

TEST(ModelCache, GoesOnAsIfAllHadBeenReadAtOnce) {
  for (const ModelCase& c : cached_model_cases()) {
    Transformer model = noisy_model(c.config);
    for (const std::vector<Index>& lengths : {std::vector<Index>{40}, {7, 33, 18}, {12, 12}}) {
      const Sample sample = sample_of(c.config, lengths);
      const Tensor want = hidden_of(model, sample);
      for (const Index piece : {1, 5, 64})
        EXPECT_SILENT(beyond_model_bound("pieces of " + std::to_string(piece),
                                         extended(model, sample, piece), want, depth(c.config)))
            << c.name << ", " << lengths.size() << " sequences";
    }
  }
}

/// Rows first to last of one sequence, of a pass over nothing behind them.
Tensor newest(Transformer& model, const Sample& sample, Index first, Index last) {
  Sample front = sample;
  front.tokens = Tokens::one({sample.tokens.ids.begin(), sample.tokens.ids.begin() + last});
  return rows_of(hidden_of(model, front), first, last - first);
}

/// Three sequences that grow in turn, a piece each at a time.
TEST(ModelCache, NewTokensAreThoseOfAPassOverAllOfThem) {
  for (const ModelCase& c : growing_model_cases()) {
    Transformer model = noisy_model(c.config);
    ModelCache cache(model, {});
    std::vector<Sample> samples;
    std::vector<Index> sequences, lengths = {0, 0, 0};
    for (const std::uint64_t seed : {1, 2, 3}) {
      samples.push_back(sample_of(c.config, {40}, seed));
      sequences.push_back(cache.add());
    }
    const std::vector<std::vector<Index>> steps = {{3, 9, 17}, {1, 1, 1}, {5, 1, 2},
                                                   {1, 1, 1},  {1, 6, 1}, {14, 1, 9}};
    for (const std::vector<Index>& step : steps) {
      Tokens tokens;
      for (std::size_t i = 0; i < 3; ++i) {
        const auto from = samples[i].tokens.ids.begin() + lengths[i];
        tokens.ids.insert(tokens.ids.end(), from, from + step[i]);
        tokens.lengths.push_back(step[i]);
      }
      const Tensor got = model.extend(tokens, cache, sequences);
      Index row = 0;
      for (std::size_t i = 0; i < 3; ++i) {
        lengths[i] += step[i];
        EXPECT_EQ(cache.tokens(sequences[i]), lengths[i]);
        EXPECT_SILENT(beyond_model_bound(
            std::to_string(step[i]) + " of " + std::to_string(lengths[i]) + " tokens",
            rows_of(got, row, step[i]), newest(model, samples[i], lengths[i] - step[i], lengths[i]),
            depth(c.config)))
            << c.name;
        row += step[i];
      }
    }
  }
}

/// Whatever hashes: a prompt is what a pass over it is, and so is each token up to a chunk.
TEST(ModelCache, HashedPromptsAreOnePass) {
  for (const char* pattern :
       {"causal & lsh(16, 2, {4})", "lsh(16, 3, {2, 4}, 7, 1, 0, once) & causal"})
    for (const bool reversible : {false, true}) {
      ModelConfig config = tiny_config();
      config.patterns = {Pattern::parse(pattern)};
      config.layers = 3;
      config.shared_query_key = ModelConfig::SharedKeys::always;
      config.reversible = reversible;
      config.tied_embeddings = !reversible;
      Transformer model = noisy_model(config);
      const Sample several = sample_of(config, {40, 7, 17}), few = sample_of(config, {16, 5});
      EXPECT_SILENT(
          beyond_model_bound("prompts", extended(model, several, 64), hidden_of(model, several), 3))
          << pattern;
      for (const Index piece : {1, 5})
        EXPECT_SILENT(beyond_model_bound("within a chunk", extended(model, few, piece),
                                         hidden_of(model, few), 3))
            << pattern;
    }
}

/// Sight ends at the window in hashed layers too, whose memory does not.
TEST(ModelCache, HashedLayersForgetByTheirPattern) {
  ModelConfig config = growing_model_cases().front().config;
  config.layers = 1;
  config.patterns = {Pattern::parse("causal & lsh(8, 2, {4})")};
  Transformer model = noisy_model(config);
  config.patterns = {Pattern::parse("causal & lsh(8, 2, {4}) & (window(9, 0) | keys(3))")};
  Transformer narrow = noisy_model(config);
  const Sample sample = sample_of(config, {40});
  ModelCache cache(model, {.window = 10, .pinned = 3});
  const std::vector<Index> sequence = {cache.add()};
  for (Index t = 0; t < 40; ++t) {
    const Tensor got = model.extend(Tokens::one({sample.tokens.ids[static_cast<std::size_t>(t)]}),
                                    cache, sequence);
    EXPECT_SILENT(
        beyond_model_bound("token " + std::to_string(t), got, newest(narrow, sample, t, t + 1), 1));
  }
}

/// Keys and values have errors of 2^-9 (bf16) and 1/254 of the largest (int8) each; what reaches
/// the output of a model of a few layers is a few of those.
TEST(ModelCache, SmallerTypesStayNear) {
  for (const ModelCase& c : cached_model_cases()) {
    Transformer model = noisy_model(c.config);
    const Sample sample = sample_of(c.config, {7, 33});
    const Tensor want = hidden_of(model, sample);
    for (const auto& [type, bound] :
         {std::pair{CacheType::bf16, 0x1p-6}, {CacheType::int8, 0x1p-5}}) {
      const Tensor got = extended(model, sample, 4, {.type = type});
      double off = 0;
      for (std::size_t i = 0; i < want.numbers().size(); ++i)
        off = std::max(off, std::abs(static_cast<double>(got.numbers()[i] - want.numbers()[i])));
      EXPECT_LE(off / largest(want), bound) << c.name << ' ' << to_string(type);
      EXPECT_GT(off, 0) << c.name << ' ' << to_string(type);
    }
  }
}

/// A cache that forgets is a model whose pattern looks no further back.
TEST(ModelCache, WindowsWithPinnedTokensAreAPattern) {
  for (ModelCase c : cached_model_cases()) {
    Transformer model = noisy_model(c.config);
    const Sample sample = sample_of(c.config, {40, 23});
    const Pattern seen = window(9, 0) | keys(3);
    for (Pattern& pattern : c.config.patterns) pattern = pattern & seen;
    Transformer narrow = noisy_model(c.config);
    const Tensor want = hidden_of(narrow, sample);
    for (const Index piece : {1, 7})
      EXPECT_SILENT(beyond_model_bound("pieces of " + std::to_string(piece),
                                       extended(model, sample, piece, {.window = 10, .pinned = 3}),
                                       want, depth(c.config)))
          << c.name;
  }
}

TEST(ModelCache, ForksGrowSeparately) {
  std::vector<ModelCase> cases = cached_model_cases();
  for (ModelCase& c : growing_model_cases()) cases.push_back(std::move(c));
  for (const ModelCase& c : cases) {
    Transformer model = noisy_model(c.config);
    Sample one = sample_of(c.config, {20}), other = one;
    for (std::size_t i = 12; i < 20; ++i)
      other.tokens.ids[i] = (other.tokens.ids[i] + 3) % static_cast<int>(*c.config.vocab_size);
    ModelCache cache(model, {});
    const std::vector<Index> first = {cache.add()};
    if (!one.sources.ids.empty()) model.encode(one.sources, cache, first);
    const auto piece = [](const Sample& s, Index begin, Index end) {
      return Tokens::one({s.tokens.ids.begin() + begin, s.tokens.ids.begin() + end});
    };
    model.extend(piece(one, 0, 15), cache, first);
    cache.truncate(first[0], 12);
    EXPECT_EQ(cache.tokens(first[0]), 12);
    const std::vector<Index> second = {cache.fork(first[0])};
    const Tensor a = model.extend(piece(one, 12, 20), cache, first);
    const Tensor b = model.extend(piece(other, 12, 20), cache, second);
    EXPECT_SILENT(
        beyond_model_bound("origin", a, rows_of(hidden_of(model, one), 12, 8), depth(c.config)))
        << c.name;
    EXPECT_SILENT(
        beyond_model_bound("fork", b, rows_of(hidden_of(model, other), 12, 8), depth(c.config)))
        << c.name;
    cache.remove(first[0]);
    cache.remove(second[0]);
    EXPECT_EQ(cache.bytes(), 0);
  }
}

TEST(ModelCache, RefusesWhatCannotBe) {
  ModelConfig config = tiny_config();
  Transformer model(config);
  ModelCache cache(model, {});
  const std::vector<Index> one = {cache.add()};
  expect_refused([&] { model.extend({{1, 2}, {1, 1}}, cache, one); }, {"2 sequences", "1"});
  expect_refused([&] { model.encode(Tokens::one({1}), cache, one); }, {"no encoder"});
  config.shared_query_key = ModelConfig::SharedKeys::always;
  for (const auto& [pattern, reason] : std::map<std::string, std::string>{
           {"causal & lsh(4, 2)", "names no buckets"},
           {"causal & lsh(4, 2, {4}, 0, 1, 0, separate)", "apart from keys"},
           {"causal & lsh(4, 2, {256, 512})", "more buckets"}}) {
    config.patterns = {Pattern::parse(pattern)};
    const Transformer hashed(config);
    expect_refused([&] { ModelCache(hashed, {}); },
                   {to_string(config.patterns[0]), reason, "forward"});
  }
  config = tiny_config();
  config.kind = ModelConfig::Kind::encoder;
  const Transformer encoder(config);
  expect_refused([&] { ModelCache(encoder, {}); }, {"encoder"});
  config = tiny_config();
  config.kind = ModelConfig::Kind::encoder_decoder;
  config.encoder_layers = 1;
  Transformer both(config);
  ModelCache unread(both, {});
  const std::vector<Index> sequence = {unread.add()};
  expect_refused([&] { both.extend(Tokens::one({1}), unread, sequence); }, {"no sources"});
}

}  // namespace
}  // namespace rapt::test
