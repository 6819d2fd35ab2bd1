#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "support/refused.h"
#include "train/data/data.h"

namespace rapt::test {
using namespace detail;
namespace {

using Tokens = std::vector<std::int32_t>;

struct Item {
  Tokens inputs, targets;
};

std::vector<Item> items_of(const Batch& batch) {
  std::vector<Item> items;
  for (Index item = 0; item < batch.items; ++item) {
    const auto begin = static_cast<std::ptrdiff_t>(item * batch.tokens), end = begin + batch.tokens;
    items.push_back({{batch.inputs.begin() + begin, batch.inputs.begin() + end},
                     {batch.targets.begin() + begin, batch.targets.begin() + end}});
  }
  return items;
}

Tokens part(const Tokens& tokens, Index first, Index count) {
  return {tokens.begin() + first, tokens.begin() + first + count};
}

TEST(CopyTask, IsReformersDuplication) {
  const auto data = open_data({.path = "task:copy", .batch_size = 6, .tokens = 64});
  EXPECT_EQ(data->vocab_size(), 128);
  std::set<std::int32_t> symbols;
  for (Index step = 0; step < 20; ++step)
    for (const auto& [inputs, targets] : items_of(data->batch(step))) {
      const Tokens list = part(inputs, 1, 31);
      EXPECT_EQ(inputs[0], 0);
      EXPECT_EQ(inputs[32], 0);
      EXPECT_EQ(part(inputs, 33, 31), list);
      EXPECT_EQ(part(targets, 0, 32), Tokens(32, -1));
      EXPECT_EQ(part(targets, 32, 31), list);
      EXPECT_EQ(targets[63], -1);
      symbols.insert(list.begin(), list.end());
    }
  EXPECT_EQ(*symbols.begin(), 1);
  EXPECT_EQ(*symbols.rbegin(), 127);
  EXPECT_EQ(symbols.size(), 127u);  // of 3,720: one is missing once in 10^10 runs
}

TEST(CopyTask, ListsMayDifferInLength) {
  const auto data =
      open_data({.path = "task:copy", .batch_size = 50, .tokens = 16, .symbols = 3, .shortest = 5});
  EXPECT_EQ(data->vocab_size(), 4);
  std::set<Index> lengths;
  for (const auto& [inputs, targets] : items_of(data->batch(0))) {
    const Index length = std::find(inputs.begin() + 1, inputs.end(), 0) - inputs.begin() - 1;
    lengths.insert(length);
    const Tokens list = part(inputs, 1, length);
    EXPECT_EQ(part(inputs, length + 2, length), list);
    EXPECT_EQ(part(inputs, 2 * length + 2, 14 - 2 * length),
              Tokens(static_cast<std::size_t>(14 - 2 * length), 0));
    EXPECT_EQ(part(targets, length + 1, length), list);
    EXPECT_EQ(std::count(targets.begin(), targets.end(), -1), 16 - length);
  }
  EXPECT_EQ(lengths, (std::set<Index>{5, 6, 7}));
}

TEST(SortTask, AsksForTheSortedList) {
  for (const std::optional<Index> shortest : {std::optional<Index>(), std::optional<Index>(2)}) {
    const auto data = open_data(
        {.path = "task:sort", .batch_size = 30, .tokens = 20, .symbols = 9, .shortest = shortest});
    EXPECT_EQ(data->vocab_size(), 10);
    std::set<Index> lengths;
    for (const auto& [inputs, targets] : items_of(data->batch(3))) {
      const Index length = std::find(inputs.begin(), inputs.end(), 0) - inputs.begin();
      lengths.insert(length);
      Tokens list = part(inputs, 0, length);
      EXPECT_GE(*std::min_element(list.begin(), list.end()), 1);
      EXPECT_LE(*std::max_element(list.begin(), list.end()), 9);
      std::sort(list.begin(), list.end());
      EXPECT_EQ(part(targets, length, length), list);
      EXPECT_EQ(std::count(targets.begin(), targets.end(), -1), 20 - length);
      list.pop_back();
      EXPECT_EQ(part(inputs, length + 1, length - 1), list);
    }
    if (!shortest)
      EXPECT_EQ(lengths, std::set<Index>{10});
    else
      EXPECT_GE(lengths.size(), 6u);
  }
}

TEST(RecallTask, AsksForValuesFarAway) {
  const auto data = open_data({.path = "task:recall",
                               .batch_size = 10,
                               .tokens = 200,
                               .symbols = 20,
                               .pairs = 6,
                               .queries = 3});
  EXPECT_EQ(data->vocab_size(), 41);
  for (Index step = 0; step < 20; ++step)
    for (const auto& [inputs, targets] : items_of(data->batch(step))) {
      std::set<std::int32_t> keys, asked;
      for (std::size_t pair = 0; pair < 6; ++pair) {
        keys.insert(inputs[2 * pair]);
        EXPECT_GE(inputs[2 * pair + 1], 21);
        EXPECT_LE(inputs[2 * pair + 1], 40);
      }
      EXPECT_EQ(keys.size(), 6u);  // no key twice, so the answer is one
      EXPECT_GE(*keys.begin(), 1);
      EXPECT_LE(*keys.rbegin(), 20);
      EXPECT_EQ(part(inputs, 12, 185), Tokens(185, 0));
      EXPECT_EQ(part(targets, 0, 197), Tokens(197, -1));
      for (std::size_t place = 197; place < 200; ++place) {
        asked.insert(inputs[place]);
        std::size_t pair = 0;
        while (pair < 6 && inputs[2 * pair] != inputs[place]) ++pair;
        ASSERT_LT(pair, 6u);
        EXPECT_EQ(targets[place], inputs[2 * pair + 1]);
      }
      EXPECT_EQ(asked.size(), 3u);
    }
}

TEST(Tasks, AreFunctionsOfSeedAndStep) {
  std::set<std::uint64_t> fingerprints;
  for (const char* path : {"task:copy", "task:sort", "task:recall"}) {
    const DataOptions options{.path = path, .batch_size = 3, .tokens = 40, .eval_batches = 5};
    DataOptions other = options;
    other.seed = 2;
    const auto data = open_data(options), again = open_data(options), different = open_data(other);
    for (const Index step : {Index{1000}, Index{0}, Index{7}, Index{1} << 40}) {
      EXPECT_EQ(data->batch(step), again->batch(step));
      EXPECT_NE(data->batch(step), data->batch(step + 1));
      EXPECT_NE(data->batch(step), different->batch(step));
    }
    EXPECT_EQ(data->eval_batches(), 5);
    EXPECT_EQ(data->eval_batch(2), again->eval_batch(2));
    for (Index i = 0; i < 5; ++i) EXPECT_NE(data->eval_batch(i), data->batch(i));
    EXPECT_EQ(data->items_per_epoch(), 0);
    fingerprints.insert({data->fingerprint(), different->fingerprint()});
    other = options;
    other.symbols = 30;
    fingerprints.insert(open_data(other)->fingerprint());
  }
  EXPECT_EQ(fingerprints.size(), 9u);
}

TEST(Tasks, RefuseOptionsThatMakeNoSense) {
  const auto refused = [](const DataOptions& options, const std::vector<std::string>& words) {
    expect_refused([&] { open_data(options); }, words);
  };
  refused({.path = "task:"}, {"task:copy, task:recall, task:sort"});
  refused({.path = "task:copy "}, {"no task is called"});
  refused({.path = "task:copy", .tokens = 65}, {"65 tokens", "even"});
  refused({.path = "task:copy", .tokens = 2}, {"2 tokens", "fits a symbol"});
  refused({.path = "task:copy", .symbols = 0}, {"0 symbols"});
  refused({.path = "task:copy", .symbols = Index{1} << 33}, {"symbols", "1000000"});
  refused({.path = "task:copy", .tokens = 8, .shortest = 4}, {"shortest", "4", "1 to 3"});
  refused({.path = "task:sort", .tokens = 8, .shortest = -1}, {"shortest", "-1", "1 to 4"});
  refused({.path = "task:recall", .symbols = 7}, {"8 pairs", "1 to 7"});
  refused({.path = "task:recall", .pairs = 0}, {"0 pairs"});
  refused({.path = "task:recall", .queries = 9}, {"9 queries", "1 to 8"});
  refused({.path = "task:recall", .queries = 0}, {"0 queries"});
  refused({.path = "task:recall", .tokens = 19}, {"19 tokens", "at least 20"});
}

}  // namespace
}  // namespace rapt::test
