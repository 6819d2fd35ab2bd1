#include "rapt/models/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/models.h"
#include "support/refused.h"
#include "support/truth/bound.h"

namespace rapt::test {
namespace {

using Ids = std::vector<std::int32_t>;
using Finish = Generated::Finish;

/// A model that is surer of itself than a fresh one: its choices differ by more than rounding.
Transformer sure_model(const ModelConfig& config) {
  Transformer model = noisy_model(config, 3);
  Parameter& head = model.parameter(config.tied_embeddings ? "embedding.weight" : "head.weight");
  for (float& number : head.value.numbers()) number *= 4;
  return model;
}

bool writes(const ModelConfig& config) { return config.kind != ModelConfig::Kind::encoder; }
bool translates(const ModelConfig& config) {
  return config.kind == ModelConfig::Kind::encoder_decoder;
}

/// Log-probabilities of the next token, by a forward pass over everything.
std::vector<double> next_of(Transformer& model, const Ids& prompt, const Ids& said,
                            std::int32_t start) {
  Tape tape(Tape::Mode::forward);
  Ids all = translates(model.config()) ? Ids{start} : prompt;
  all.insert(all.end(), said.begin(), said.end());
  const Variable hidden = translates(model.config())
                              ? model.forward(tape, Tokens::one(all), Tokens::one(prompt))
                              : model.forward(tape, Tokens::one(all));
  const Tensor last = rows_of(hidden.value(), static_cast<Index>(all.size()) - 1, 1);
  const Tensor logits = model.logits(last);
  double sum = 0;
  for (const float x : logits.numbers()) sum += std::exp(static_cast<double>(x));
  std::vector<double> next;
  for (const float x : logits.numbers()) next.push_back(static_cast<double>(x) - std::log(sum));
  return next;
}

/// Whose next token is that of a pass over all: those whose earlier tokens stay what they are, or
/// do not matter, and those without a cache.
std::vector<ModelCase> forward_cases() {
  std::vector<ModelCase> all = model_cases();
  std::erase_if(all, [](const ModelCase& c) { return !writes(c.config) || hashes(c.config); });
  for (ModelCase& c : growing_model_cases()) all.push_back(std::move(c));
  ModelCase reread{"hashed without a cache", tiny_config()};
  reread.config.shared_query_key = ModelConfig::SharedKeys::always;
  reread.config.patterns = {Pattern::parse("causal & lsh(4, 2)")};
  EXPECT_TRUE(why_no_cache(reread.config));
  all.push_back(reread);
  return all;
}

TEST(Generate, LogProbabilitiesAreComputedOnlyIfAskedFor) {
  Transformer model = sure_model(forward_cases().front().config);
  const std::vector<Ids> prompts = {{1, 2, 3}};
  GenerateOptions options{.max_new_tokens = 5, .decoder_start_token = 2};
  const Generated plain = generate(model, prompts, options).front();
  options.log_probability = true;
  const Generated asked = generate(model, prompts, options).front();
  EXPECT_FALSE(plain.log_probability.has_value());
  EXPECT_LE(asked.log_probability.value(), 0);
  EXPECT_EQ(plain.ids, asked.ids);
}

TEST(Generate, GreedyIsTheLikeliestTokenOfAForwardPass) {
  for (const ModelCase& c : forward_cases()) {
    Transformer model = sure_model(c.config);
    const std::vector<Ids> prompts = {{1, 2, 3}, {7, 5, 0, 12, 3, 4, 9}};
    const std::vector<Generated> made = generate(model, prompts,
                                                 {.sampling = {.temperature = 0},
                                                  .max_new_tokens = 12,
                                                  .decoder_start_token = 2,
                                                  .log_probability = true});
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      ASSERT_EQ(made[i].ids.size(), 12u) << c.name;
      Ids said;
      double sum = 0;
      for (const std::int32_t id : made[i].ids) {
        const std::vector<double> next = next_of(model, prompts[i], said, 2);
        const double most = *std::max_element(next.begin(), next.end());
        EXPECT_GE(next[static_cast<std::size_t>(id)], most - 1e-4) << c.name;
        sum += next[static_cast<std::size_t>(id)];
        said.push_back(id);
      }
      EXPECT_NEAR(made[i].log_probability.value(), sum, 1e-3) << c.name;
      EXPECT_EQ(made[i].finish_reason, Finish::length);
    }
  }
}

TEST(Generate, APromptGivesTheSameTokensAloneAndInCompany) {
  for (const ModelCase& c : model_cases()) {
    if (!writes(c.config)) continue;
    Transformer model = sure_model(c.config);
    const std::vector<Ids> prompts = {{1, 2, 3}, {7, 5, 0, 12, 3, 4, 9}, {4}, {1, 2}, {8, 8, 8}};
    for (const Index beams : {1, 3}) {
      GenerateOptions options{.max_new_tokens = 10, .decoder_start_token = 2, .num_beams = beams};
      if (beams > 1) options.sampling.temperature = 0;
      const std::vector<Generated> together = generate(model, prompts, options);
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        const Generated alone = generate(model, std::span(&prompts[i], 1), options).front();
        EXPECT_EQ(together[i].ids, alone.ids) << c.name << ' ' << i << ", beams " << beams;
      }
    }
  }
}

/// A model may have more entries than its tokenizer; those are never generated.
TEST(Generate, ChoosesAmongTheEntriesOfTheTokenizer) {
  Transformer model = noisy_model(tiny_config());
  const std::vector<Ids> prompts = {{1, 2, 3}, {4, 0}};
  for (const Index beams : {1, 3}) {
    GenerateOptions options{.sampling = {.temperature = beams == 1 ? 5.0 : 0.0},
                            .max_new_tokens = 40};
    options.num_beams = beams;
    Index beyond = 0;
    for (const Generated& made : generate(model, prompts, options))
      for (const std::int32_t id : made.ids) beyond += id >= 3;
    EXPECT_GT(beyond, 0) << beams;
    options.vocab_size = 3;
    for (const Generated& made : generate(model, prompts, options))
      for (const std::int32_t id : made.ids) EXPECT_LT(id, 3) << beams;
  }
}

TEST(Generate, SeedsDecide) {
  Transformer model = noisy_model(tiny_config());
  const std::vector<Ids> prompts = {{1, 2}, {1, 2}};
  const GenerateOptions options{.sampling = {.seed = 4}, .max_new_tokens = 20};
  const std::vector<Generated> one = generate(model, prompts, options);
  EXPECT_EQ(one[0].ids, generate(model, prompts, options)[0].ids);
  EXPECT_NE(one[0].ids, one[1].ids);  // a prompt given twice has two answers
  EXPECT_NE(one[0].ids,
            generate(model, prompts, {.sampling = {.seed = 5}, .max_new_tokens = 20})[0].ids);
  for (const Index threads : {1, 3})
    EXPECT_EQ(one[0].ids, generate(model, prompts, options, {}, Context(threads))[0].ids);
}

// Beams -------------------------------------------------------------------------------------------

struct Best {
  Ids ids;
  double score = -INFINITY, rank = -INFINITY;
};

/// The best of all texts that end within `tokens` tokens, by trying every one.
void search(Transformer& model, const Ids& prompt, const GenerateOptions& options, const Ids& said,
            double score, Best& best) {
  const std::vector<double> next = next_of(model, prompt, said, options.decoder_start_token);
  for (std::size_t id = 0; id < next.size(); ++id) {
    const double now = score + next[id];
    if (static_cast<std::int32_t>(id) == options.stop_tokens.front()) {
      const double rank =
          now / std::pow(static_cast<double>(said.size() + 1), options.length_penalty);
      if (rank > best.rank) best = {said, now, rank};
    } else if (static_cast<Index>(said.size()) + 1 < options.max_new_tokens) {
      Ids more = said;
      more.push_back(static_cast<std::int32_t>(id));
      search(model, prompt, options, more, now, best);
    }
  }
}

TEST(Beams, EnoughOfThemFindTheBestTextOfAll) {
  for (const ModelCase& c : forward_cases()) {
    const std::vector<std::string> some = {"plain", "encoder-decoder", "hashed at last",
                                           "hashed without a cache"};
    if (std::find(some.begin(), some.end(), c.name) == some.end()) continue;
    ModelConfig config = c.config;
    config.vocab_size = 4;
    Transformer model = sure_model(config);
    for (const double penalty : {0.0, 1.0, 2.0}) {
      GenerateOptions options{
          .max_new_tokens = 4, .stop_tokens = {3}, .decoder_start_token = 1, .num_beams = 81};
      options.sampling.temperature = 0;
      options.length_penalty = penalty;
      const std::vector<Ids> prompt = {{0, 1, 2, 1, 0}};
      Best best;
      search(model, prompt[0], options, {}, 0, best);
      const Generated found = generate(model, prompt, options).front();
      EXPECT_EQ(found.ids, best.ids) << c.name << ' ' << penalty;
      EXPECT_NEAR(found.log_probability.value(), best.score, 1e-4) << c.name << ' ' << penalty;
      EXPECT_EQ(found.finish_reason, Finish::eos);
    }
  }
}

TEST(Beams, ManyEndsLeaveEnoughBeams) {
  ModelConfig config = tiny_config();
  Transformer model = sure_model(config);
  GenerateOptions options{
      .max_new_tokens = 6, .stop_tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, .num_beams = 2};
  options.sampling.temperature = 0;
  options.length_penalty = 4;  // long texts win as long as there are beams to write them
  const std::vector<Ids> prompt = {{0, 12}};
  const Generated found = generate(model, prompt, options).front();
  // Only 0 and 12 do not end a text.
  for (const std::int32_t id : found.ids) EXPECT_TRUE(id == 0 || id == 12) << id;
  EXPECT_EQ(found.ids.size(), 5u);
}

// Ends --------------------------------------------------------------------------------------------

TEST(Generate, EndsWhereItShould) {
  ModelConfig config = tiny_config();
  config.positions = ModelConfig::Positions::learned;
  config.max_positions = 10;
  Transformer model = sure_model(config);
  const std::vector<Ids> prompt = {{1, 2, 3}};
  GenerateOptions options{.sampling = {.temperature = 0}, .max_new_tokens = 30};
  for (const Index beams : {1, 2}) {
    options.num_beams = beams;
    const Generated whole = generate(model, prompt, options).front();
    EXPECT_EQ(whole.finish_reason, Finish::context);
    EXPECT_EQ(whole.ids.size(), 7u) << beams;
    options.context_size = 5;
    EXPECT_EQ(generate(model, prompt, options).front().ids.size(), 2u) << beams;
    const std::vector<Ids> too_long = {Ids(11, 1)};
    expect_refused([&] { generate(model, too_long, options); },
                   {"prompt 1 of 1 has 11 tokens, expected fewer than the 5 of the context"});
    options.context_size.reset();
  }
  options.num_beams = 1;
  const Generated whole = generate(model, prompt, options).front();
  options.stop_tokens = {whole.ids[3]};
  const Generated ended = generate(model, prompt, options).front();
  EXPECT_EQ(ended.finish_reason, Finish::eos);
  EXPECT_LE(ended.ids.size(), 3u);
  options.overflow = GenerateOptions::Overflow::slide;
  expect_refused([&] { generate(model, prompt, options); }, {"cannot slide"});
}

TEST(Generate, AGridOfPositionsIsAContext) {
  ModelConfig config = tiny_config();
  config.positions = ModelConfig::Positions::axial;
  config.axial_rows = 2;
  config.axial_columns = 4;
  config.axial_row_dim = 6;
  Transformer model = sure_model(config);
  const std::vector<Ids> prompt = {{1, 2, 3}};
  const Generated made = generate(model, prompt, {.max_new_tokens = 30}).front();
  EXPECT_EQ(made.ids.size(), 5u);
  EXPECT_EQ(made.finish_reason, Finish::context);
}

TEST(Generate, SlidesOverALongText) {
  for (const ModelCase& c : cached_model_cases()) {
    using enum ModelConfig::Positions;
    if (c.config.positions == learned || c.config.positions == axial || translates(c.config))
      continue;
    Transformer model = sure_model(c.config);
    ModelConfig narrow = c.config;
    for (Pattern& pattern : narrow.patterns) pattern = pattern & (window(8, 0) | keys(2));
    Transformer other = sure_model(narrow);
    const std::vector<Ids> prompt = {{1, 2, 3, 4, 5}};
    GenerateOptions options{.sampling = {.temperature = 0}, .max_new_tokens = 60};
    const Generated want = generate(other, prompt, options).front();
    options.context_size = 11;
    options.pinned = 2;
    options.overflow = GenerateOptions::Overflow::slide;
    const Generated got = generate(model, prompt, options).front();
    EXPECT_EQ(got.ids, want.ids) << c.name;
    EXPECT_EQ(got.finish_reason, Finish::length);
  }
}

TEST(Generate, StopsWhenAsked) {
  Transformer model = noisy_model(tiny_config());
  const std::vector<Ids> prompts = {{1, 2}, {3}};
  Index tokens = 0;
  GenerateEvents events;
  events.token = [&](Index, std::int32_t) { ++tokens; };
  events.cancelled = [&] { return tokens >= 6; };
  const std::vector<Generated> made = generate(model, prompts, {.max_new_tokens = 50}, events);
  for (const Generated& one : made) {
    EXPECT_EQ(one.finish_reason, Finish::cancelled);
    EXPECT_EQ(one.ids.size(), 3u);
  }
}

TEST(Generate, RefusesWhatCannotBe) {
  Transformer model = noisy_model(tiny_config());
  const std::vector<Ids> empty = {{}}, prompt = {{1}}, unknown = {{99}};
  for (const Index beams : {1, 2}) {
    GenerateOptions options{
        .sampling = {.temperature = 0}, .max_new_tokens = 2, .num_beams = beams};
    expect_refused([&] { generate(model, empty, options); }, {"empty"});
    expect_refused([&] { generate(model, unknown, options); }, {"99"});
  }
  expect_refused([&] { generate(model, prompt, {.max_new_tokens = 0}); }, {"tokens"});
  ModelConfig config = tiny_config();
  config.kind = ModelConfig::Kind::encoder;
  Transformer encoder(config);
  expect_refused([&] { generate(encoder, prompt); }, {"encoder"});
}

TEST(Generate, AllPromptsAreLookedAtBeforeAnyIsRead) {
  ModelConfig config = tiny_config();
  config.positions = ModelConfig::Positions::learned;
  config.max_positions = 10;
  Transformer decoder = noisy_model(config);
  config.kind = ModelConfig::Kind::encoder_decoder;
  config.encoder_layers = 1;
  Transformer translator = noisy_model(config);
  GenerateEvents events;
  events.token = [](Index, std::int32_t) { ADD_FAILURE() << "something was generated"; };
  events.prefill = [](Index, Index, Index) { ADD_FAILURE() << "something was read"; };
  const std::vector<Ids> long_one = {{1}, Ids(11, 1)}, unknown = {{1}, {1}, {2, -1}};
  for (const Index beams : {1, 2})
    for (Transformer* model : {&decoder, &translator}) {
      const GenerateOptions options{.max_new_tokens = 3, .num_beams = beams};
      const char* limit = model == &decoder ? "fewer than the 10 of the context" : "at most the 10";
      expect_refused([&] { generate(*model, long_one, options, events); },
                     {"prompt 2 of 2 has 11 tokens", limit});
      expect_refused([&] { generate(*model, unknown, options, events); },
                     {"prompt 3 of 3 has the token -1, expected 0 to"});
    }
}

TEST(Generate, AContextBoundsWhatIsSeen) {
  EXPECT_EQ((GenerateOptions{.max_new_tokens = 5}.max_context(3)), 8);
  EXPECT_EQ((GenerateOptions{.max_new_tokens = 5, .context_size = 9}.max_context(3)), 8);
  EXPECT_EQ((GenerateOptions{.max_new_tokens = 5, .context_size = 7}.max_context(3)), 7);
  EXPECT_EQ((GenerateOptions{.max_new_tokens = 5, .context_size = 4}.max_context(9)), 4);
  const Index most = std::numeric_limits<Index>::max();
  EXPECT_EQ((GenerateOptions{.max_new_tokens = most}.max_context(3)), most);
}

TEST(Generate, BeamsDrawNothing) {
  Transformer model = noisy_model(tiny_config());
  const std::vector<Ids> prompt = {{1, 2}};
  const auto ids = [&](double temperature) {
    return generate(model, prompt,
                    {.sampling = {.temperature = temperature}, .max_new_tokens = 9, .num_beams = 3})
        .front()
        .ids;
  };
  EXPECT_EQ(ids(3), ids(0));
}

TEST(Generate, HasNamesForItsEnums) {
  EXPECT_EQ(to_string(Finish::eos), "eos");
  EXPECT_EQ(from_string<Finish>("cancelled"), Finish::cancelled);
  EXPECT_EQ(from_string<GenerateOptions::Overflow>("slide"), GenerateOptions::Overflow::slide);
  EXPECT_EQ(to_string(GenerateOptions::Overflow::stop), "stop");
  expect_refused([] { from_string<GenerateOptions::Overflow>("wrap"); },
                 {"overflow: \"wrap\" given, expected stop or slide"});
}

}  // namespace
}  // namespace rapt::test
