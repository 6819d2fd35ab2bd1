#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "support/text_folder.h"
#include "train/data/data.h"
#include "train/data/masking.h"

// Masked language modelling. Bytes are tokens, 256 opens and ends documents, 258 is the mask.
namespace rapt::test {
using namespace detail;
namespace {

using Tokens = std::vector<std::int32_t>;

std::unique_ptr<const Data> opened_masked(const DataOptions& options) {
  return open_data(options, Tokenizer::bytes());
}

TEST(MaskedData, HidesAsManyTokensAsItShould) {
  const TextFolder folder;
  const std::string path = folder.write("t", std::string(200'000, 'q'));
  const auto data = opened_masked(
      {.path = path, .objective = Objective::masked_token, .batch_size = 10, .tokens = 1000});
  EXPECT_EQ(data->vocab_size(), 259);  // the mask is 258
  std::map<std::string, double> seen;
  constexpr double tokens = 100'000;
  for (Index step = 0; step < 10; ++step) {
    const Batch batch = data->batch(step);
    for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
      const std::int32_t input = batch.inputs[i], target = batch.targets[i];
      if (target == -1) {
        EXPECT_TRUE(input == 'q' || input == 256);
        continue;
      }
      EXPECT_EQ(target, 'q');
      seen["chosen"] += 1;
      seen[input == 258 ? "mask" : input == 'q' ? "kept" : "other"] += 1;
      EXPECT_TRUE(input < 256 || input == 258);
    }
  }
  // Six standard deviations of counts of independent choices; one other token in 256 is q again.
  const auto expect_near = [&](const char* what, double p) {
    EXPECT_NEAR(seen[what], tokens * p, 6 * std::sqrt(tokens * p * (1 - p))) << what;
  };
  expect_near("chosen", 0.15);
  expect_near("mask", 0.12);
  expect_near("kept", 0.015 + 0.015 / 256);
  expect_near("other", 0.015 - 0.015 / 256);
}

TEST(MaskedData, HidesOtherPlacesInTheNextEpochAndAtLeastOne) {
  const TextFolder folder;
  const std::string path = folder.write("t", std::string(1000, 'q'));
  const auto data = opened_masked({.path = path,
                                   .objective = Objective::masked_token,
                                   .batch_size = 1,
                                   .tokens = 4,
                                   .eval_batches = 3});
  std::set<Tokens> seen;
  for (Index step = 0; step < 2000; ++step) {
    const Batch batch = data->batch(step);
    EXPECT_GE(batch.counted(), 1);
    seen.insert(batch.targets);
  }
  EXPECT_GE(seen.size(), 11u);  // of 15: all sets of one and two places, and some larger
  EXPECT_EQ(data->eval_batch(1), data->eval_batch(1));
  EXPECT_NE(data->eval_batch(1).targets, data->eval_batch(0).targets);
}

TEST(MaskedData, LeavesEndsAlone) {
  const TextFolder folder;
  for (int i = 0; i < 300; ++i) folder.write(std::to_string(i), "x");
  const auto data = opened_masked({.path = folder.path(),
                                   .objective = Objective::masked_token,
                                   .batch_size = 4,
                                   .tokens = 50,
                                   .eval_batches = {},
                                   .mask_probability = 1});
  const Batch batch = data->batch(0);
  EXPECT_EQ(std::count(batch.inputs.begin(), batch.inputs.end(), 256), 100);
  EXPECT_EQ(std::count(batch.targets.begin(), batch.targets.end(), 'x'), 100);
  EXPECT_EQ(batch.counted(), 100);
}

TEST(Masking, TakesTheMaskOfTheTokenizerIfItHasOne) {
  const TextFolder folder;
  const std::string file = folder / "tokenizer.json";
  Tokenizer::train({{"abc"}}, 258).save(file);
  std::string json = get(file);
  // The padding's name, wherever the file has it.
  const std::string padding = "<|padding|>";
  ASSERT_NE(json.find(padding), std::string::npos);
  for (std::size_t at = 0; (at = json.find(padding)) != std::string::npos;)
    json.replace(at, padding.size(), "[MASK]");
  put(file, json);
  const Tokenizer tokenizer = Tokenizer::load(file);
  const Masking masking(tokenizer, 0.5);
  EXPECT_EQ(masking.vocab_size(), 258);
  EXPECT_EQ(masking.mask(), *tokenizer.token_to_id("[MASK]"));
  EXPECT_EQ(Masking(Tokenizer::bytes(), 0.5).mask(), 258);
  Tokens inputs(1000, masking.mask()), targets(1000, -1);
  masking.apply(inputs, targets, 1);
  EXPECT_EQ(inputs, Tokens(1000, masking.mask()));  // special tokens are left alone
  EXPECT_EQ(targets, Tokens(1000, -1));
}

}  // namespace
}  // namespace rapt::test
