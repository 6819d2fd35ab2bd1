#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/random.h"
#include "support/refused.h"
#include "support/text_folder.h"
#include "train/data/data.h"

// Sequence to sequence from tab-separated lines. Bytes are tokens, 256 ends, 257 fills up.
namespace rapt::test {
using namespace detail;
namespace {

using Tokens = std::vector<std::int32_t>;

std::unique_ptr<const Data> opened_pairs(DataOptions options) {
  options.objective = Objective::pairs;
  return open_data(options, Tokenizer::bytes());
}

struct Text {
  std::string source, target;
  auto operator<=>(const Text&) const = default;
};

/// The pairs of a batch, after its layout was checked.
std::vector<Text> texts_of(const Batch& batch) {
  std::vector<Text> texts;
  Index longest = 0, longest_source = 0;
  EXPECT_EQ(static_cast<Index>(batch.inputs.size()), batch.items * batch.tokens);
  EXPECT_EQ(static_cast<Index>(batch.sources.size()), batch.items * batch.source_tokens);
  for (Index item = 0; item < batch.items; ++item) {
    const auto* input = &batch.inputs[static_cast<std::size_t>(item * batch.tokens)];
    const auto* target = &batch.targets[static_cast<std::size_t>(item * batch.tokens)];
    const auto* source = &batch.sources[static_cast<std::size_t>(item * batch.source_tokens)];
    const Index length = std::count_if(target, target + batch.tokens, [](int t) { return t >= 0; });
    const Index source_length = batch.source_lengths[static_cast<std::size_t>(item)];
    longest = std::max(longest, length);
    longest_source = std::max(longest_source, source_length);
    Text text;
    EXPECT_EQ(input[0], 256);
    for (Index i = 1; i < batch.tokens; ++i) EXPECT_EQ(input[i], i < length ? target[i - 1] : 257);
    for (Index i = 0; i + 1 < length; ++i) text.target += static_cast<char>(target[i]);
    EXPECT_EQ(target[length - 1], 256);
    for (Index i = 0; i + 1 < source_length; ++i) text.source += static_cast<char>(source[i]);
    EXPECT_EQ(source[source_length - 1], 256);
    for (Index i = source_length; i < batch.source_tokens; ++i) EXPECT_EQ(source[i], 257);
    texts.push_back(text);
  }
  EXPECT_EQ(batch.tokens, longest);  // no column is all filling
  EXPECT_EQ(batch.source_tokens, longest_source);
  return texts;
}

/// Lines "number, tab, as many x as its digits add up to".
std::string lines_of(Index count) {
  std::string lines;
  for (Index i = 0; i < count; ++i) {
    const std::string number = std::to_string(i * i);
    Index sum = 1;
    for (const char digit : number) sum += digit - '0';
    lines += number + "\t" + std::string(static_cast<std::size_t>(sum), 'x') + "\n";
  }
  return lines;
}

TEST(PairData, IsWhatTheLinesSay) {
  const TextFolder folder;
  const auto data = opened_pairs({.path = folder.write("p", "ab\tx\nc\tyz"),
                                  .batch_size = 2,
                                  .tokens = 8,
                                  .eval_batches = {}});
  EXPECT_EQ(data->vocab_size(), 258);
  EXPECT_EQ(data->items_per_epoch(), 2);
  const Batch batch = data->batch(0);
  // All 128 places of the first group hold "x" or "yz", sorted: a batch has one of them twice.
  const Batch x{.items = 2,
                .tokens = 2,
                .inputs = {256, 'x', 256, 'x'},
                .targets = {'x', 256, 'x', 256},
                .documents = {},
                .source_tokens = 3,
                .sources = {'a', 'b', 256, 'a', 'b', 256},
                .source_lengths = {3, 3}};
  const Batch yz{.items = 2,
                 .tokens = 3,
                 .inputs = {256, 'y', 'z', 256, 'y', 'z'},
                 .targets = {'y', 'z', 256, 'y', 'z', 256},
                 .documents = {},
                 .source_tokens = 2,
                 .sources = {'c', 256, 'c', 256},
                 .source_lengths = {2, 2}};
  EXPECT_TRUE(batch == x || batch == yz);
  Index first = 0;
  for (Index step = 0; step < 64; ++step) {
    ASSERT_TRUE(data->batch(step) == x || data->batch(step) == yz);
    first += data->batch(step) == x;
  }
  EXPECT_EQ(first, 32);
}

TEST(PairData, FillsUpShorterItems) {
  const TextFolder folder;
  const auto data = opened_pairs({.path = folder.write("p", "a\tx\n"),
                                  .batch_size = 2,
                                  .tokens = 8,
                                  .eval_path = folder.write("q", "ab\tx\nc\tyz")});
  const Batch batch = data->eval_batch(0);
  EXPECT_EQ(batch.inputs, (Tokens{256, 'x', 257, 256, 'y', 'z'}));
  EXPECT_EQ(batch.targets, (Tokens{'x', 256, -1, 'y', 'z', 256}));
  EXPECT_EQ(batch.sources, (Tokens{'a', 'b', 256, 'c', 256, 257}));
  EXPECT_EQ(batch.source_lengths, (std::vector<Index>{3, 2}));
}

TEST(PairData, EveryEpochTakesEachPairOnceAndWastesLittle) {
  const TextFolder folder;
  // 16 · 64 · 3 pairs: three groups are an epoch.
  const auto data = opened_pairs({.path = folder.write("p", lines_of(3072)),
                                  .batch_size = 16,
                                  .tokens = 128,
                                  .eval_batches = {}});
  Index places = 0, filled = 0;
  std::vector<std::vector<Text>> epochs(2);
  for (Index step = 0; step < 2 * 192; ++step) {
    const Batch batch = data->batch(step);
    for (const Text& text : texts_of(batch))
      epochs[static_cast<std::size_t>(step / 192)].push_back(text);
    places += batch.items * (batch.tokens + batch.source_tokens);
    filled += batch.counted();
    for (const Index length : batch.source_lengths) filled += length;
  }
  EXPECT_NE(epochs[0], epochs[1]);
  for (auto& epoch : epochs) {
    std::sort(epoch.begin(), epoch.end());
    EXPECT_EQ(std::adjacent_find(epoch.begin(), epoch.end()), epoch.end());
    EXPECT_EQ(epoch.size(), 3072u);
  }
  EXPECT_EQ(epochs[0], epochs[1]);
  EXPECT_GT(static_cast<double>(filled), 0.95 * static_cast<double>(places));
}

TEST(PairData, IsAFunctionOfTheStep) {
  const TextFolder folder;
  const DataOptions options{
      .path = folder.write("p", lines_of(500)), .batch_size = 8, .tokens = 128};
  const auto data = opened_pairs(options), again = opened_pairs(options);
  for (const Index step : {700, 3, 64, 63, 0}) EXPECT_EQ(data->batch(step), again->batch(step));
  EXPECT_NE(data->batch(0), data->batch(1));
  EXPECT_EQ(data->eval_batch(0), again->eval_batch(0));
  EXPECT_EQ(data->fingerprint(), again->fingerprint());
  EXPECT_NE(data->fingerprint(),
            opened_pairs({.path = folder.write("q", lines_of(501)), .batch_size = 8, .tokens = 128})
                ->fingerprint());
}

TEST(PairData, HeldOutSourcesAreNeverTrainedOn) {
  const TextFolder folder;
  // Every source three times, with targets of its own.
  std::string lines;
  for (int i = 0; i < 300; ++i)
    lines += "s" + std::to_string(i % 100) + "\tt" + std::to_string(i) + "\n";
  const auto data = opened_pairs({.path = folder.write("p", lines),
                                  .batch_size = 10,
                                  .tokens = 16,
                                  .eval_batches = 100,
                                  .eval_fraction = 0.1});
  std::set<std::string> trained, held_out;
  for (Index step = 0; step < 64; ++step)
    for (const Text& text : texts_of(data->batch(step))) trained.insert(text.source);
  Index items = 0;
  for (Index i = 0; i < data->eval_batches(); ++i)
    for (const Text& text : texts_of(data->eval_batch(i))) {
      held_out.insert(text.source);
      ++items;
    }
  EXPECT_EQ(items, 30);
  EXPECT_EQ(held_out.size(), 10u);
  EXPECT_EQ(trained.size(), 90u);
  for (const std::string& source : held_out) EXPECT_FALSE(trained.contains(source)) << source;
}

TEST(PairData, EvaluationTakesNoMoreThanItMay) {
  const TextFolder folder;
  const auto data = opened_pairs({.path = folder.write("p", lines_of(400)),
                                  .batch_size = 7,
                                  .tokens = 128,
                                  .eval_batches = 3,
                                  .eval_fraction = 0.5});
  EXPECT_EQ(data->eval_batches(), 3);
  std::set<Text> seen;
  for (Index i = 0; i < 3; ++i)
    for (const Text& text : texts_of(data->eval_batch(i))) seen.insert(text);
  EXPECT_EQ(seen.size(), 21u);
}

TEST(PairData, LineEndsMayHaveReturnsAndOtherBytesAreKept) {
  const TextFolder folder;
  const std::string line("a\0\xFF\tx\r\r\n", 8);
  const auto data = opened_pairs(
      {.path = folder.write("p", line), .batch_size = 1, .tokens = 8, .eval_batches = {}});
  EXPECT_EQ(texts_of(data->batch(0)), (std::vector<Text>{{std::string("a\0\xFF", 3), "x\r"}}));
}

TEST(PairData, BrokenLinesAreNamed) {  // CO-08
  const TextFolder folder;
  const auto refused = [&](std::string_view text, const std::vector<std::string>& words) {
    const std::string path = folder.write("p", text);
    expect_broken([&] { opened_pairs({.path = path, .tokens = 8, .eval_batches = {}}); }, words);
  };
  refused("a\tb\nno tab\nc\td\n", {folder / "p", "line 2", "0 tabs"});
  refused("a\tb\n\nc\td\n", {"line 2", "0 tabs"});
  refused("a\tb\tc\n", {"line 1", "2 tabs"});
  refused("a\tb\n\tc", {"line 2", "empty"});
  refused("a\tb\nc\t\r\n", {"line 2", "empty"});
  refused("a\tb\nc\td\nabcdefgh\tx\n", {"line 3", "9 tokens", "at most 8"});
  refused("", {"no pairs for training"});
  refused(std::string((16u << 20) + 1, 'x'), {"line 1", "longer"});
  expect_broken(
      [&] {
        opened_pairs({.path = folder.write("p", "a\tb\n"), .eval_path = folder.write("q", "")});
      },
      {folder / "q", "no pairs for evaluation"});
  for (const char* lines : {"a\tb\n", "a\tb\na\tb\na\tc\n"})  // CO-10: all alike
    expect_broken([&] { opened_pairs({.path = folder.write("p", lines)}); },
                  {"no pairs for training: all have one source, and so are held out together"});
}

TEST(Accuracy, CountsTargetsAndWholeItems) {
  const Batch batch{
      .items = 3, .tokens = 3, .inputs = Tokens(9), .targets = {1, 2, -1, -1, 5, 6, -1, -1, -1}};
  Accuracy accuracy;
  EXPECT_EQ(accuracy.of_targets(), 0);
  EXPECT_EQ(accuracy.of_items(), 0);
  accuracy.add(batch, Tokens{1, 2, 9, 9, 5, 7, 0, 0, 0});
  EXPECT_EQ(accuracy.targets, 4);
  EXPECT_EQ(accuracy.right, 3);
  EXPECT_EQ(accuracy.items, 2);  // the third has nothing that counts
  EXPECT_EQ(accuracy.exact, 1);
  accuracy.add(batch, Tokens{1, 2, -1, -1, 5, 6, -1, -1, -1});
  EXPECT_EQ(accuracy.of_targets(), 7.0 / 8);
  EXPECT_EQ(accuracy.of_items(), 3.0 / 4);
  expect_refused([&] { accuracy.add(batch, Tokens(8)); }, {"8 predictions", "expected 9"});
}

}  // namespace
}  // namespace rapt::test
