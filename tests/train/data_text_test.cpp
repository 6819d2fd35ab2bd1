#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "support/text_folder.h"
#include "train/data/corpus.h"
#include "train/data/data.h"
#include "train/data/windows.h"

// Language modelling from files. Bytes are tokens; 256 opens and ends documents.
namespace rapt::test {
using namespace detail;
namespace {

using Tokens = std::vector<std::int32_t>;

std::unique_ptr<const Data> opened_text(const DataOptions& options) {
  return open_data(options, Tokenizer::bytes());
}

/// Bytes that tell their place: no four neighbours occur twice.
std::string counting_text(Index bytes) {
  std::string text;
  for (Index i = 0; static_cast<Index>(text.size()) < bytes; ++i) {
    const std::string number = std::to_string(1000 + i) + " ";
    text += number;
  }
  text.resize(static_cast<std::size_t>(bytes));
  return text;
}

TEST(Windows, EveryEpochTakesEachWindowOnce) {
  for (const Index end : {257, 1000, 4097}) {
    const Windows windows(1, end, 64, 1);
    EXPECT_EQ(windows.count(), (end - 2) / 64);
    std::set<std::vector<Index>> orders;
    for (Index epoch = 0; epoch < 5; ++epoch) {
      std::set<Index> seen;
      std::vector<Index> order;
      std::set<Index> shifts;
      for (Index i = 0; i < windows.count(); ++i) {
        const auto visit = windows.visit(epoch * windows.count() + i, 7);
        EXPECT_EQ(visit.epoch, epoch);
        EXPECT_GE(visit.first, 1);
        EXPECT_LE(visit.first + 64 + 1, end);
        shifts.insert(visit.first - windows.first(visit.window));
        seen.insert(visit.window);
        order.push_back(visit.first);
      }
      EXPECT_EQ(static_cast<Index>(seen.size()), windows.count());
      EXPECT_EQ(shifts.size(), 1u);  // of an epoch, so that its windows do not overlap
      orders.insert(order);
    }
    EXPECT_GE(orders.size(), 4u);
  }
}

TEST(Windows, PlacesAbove32BitsAreRight) {  // CO-02
  const Index end = (Index{1} << 33) + 12345;
  const Windows windows(0, end, 4096, 1);
  EXPECT_EQ(windows.count(), (end - 1) / 4096);
  EXPECT_EQ(windows.first(windows.count() - 1), (windows.count() - 1) * 4096);
  Index largest = 0;
  for (Index i = 0; i < 1000; ++i) {
    const auto visit = windows.visit((Index{1} << 45) + i, 1);
    EXPECT_EQ(visit.epoch, ((Index{1} << 45) + i) / windows.count());
    EXPECT_GE(visit.first, 0);
    EXPECT_LE(visit.first + 4097, end);
    largest = std::max(largest, visit.first);
  }
  EXPECT_GT(largest, Index{1} << 32);
}

TEST(Corpus, IsFilesInOrderOfTheirNamesBetweenEnds) {
  const TextFolder folder;
  folder.write("b.txt", "two");
  folder.write("a.txt", "1");
  folder.write("a/z", "deep");
  folder.write("empty", "");
  folder.write(".hidden", "never");
  folder.write("Z", "zed");
  const Corpus corpus(folder.path(), Tokenizer::bytes());
  EXPECT_EQ(corpus.files(), 5);
  Tokens tokens;
  for (Index i = 0; i < corpus.tokens(); ++i) tokens.push_back(corpus.token(i));
  // Names as bytes: "Z", "a" (a folder), "a.txt", "b.txt", "empty".
  EXPECT_EQ(tokens, (Tokens{256, 'z', 'e', 'd', 256, 'd', 'e', 'e', 'p', 256, '1', 256, 't', 'w',
                            'o', 256}));
  EXPECT_EQ(std::vector<Index>(corpus.documents().begin(), corpus.documents().end()),
            (std::vector<Index>{0, 4, 9, 11}));
  EXPECT_EQ(corpus.parts(0, 16), (std::vector<Index>{4, 5, 2, 5}));
  EXPECT_EQ(corpus.parts(4, 5), (std::vector<Index>{5}));
  EXPECT_EQ(corpus.parts(3, 2), (std::vector<Index>{1, 1}));
}

TEST(Corpus, KeepsEveryByte) {  // CO-03
  const TextFolder folder;
  const std::string bytes(
      "\xEF\xBB\xBF"
      "a\r\nb\0c\xC3\x28\xFF\xF0\x9F no newline",
      24);
  const Corpus corpus(folder.write("odd", bytes), Tokenizer::bytes());
  ASSERT_EQ(corpus.tokens(), static_cast<Index>(bytes.size()) + 2);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    EXPECT_EQ(corpus.token(static_cast<Index>(i) + 1), static_cast<unsigned char>(bytes[i])) << i;
}

TEST(Corpus, TokensOfPiecesAreThoseOfTheWhole) {
  const TextFolder folder;
  RandomStream random(3);
  const std::vector<std::string> parts = {
      "the ", " cat", "  ",       "\n",       " \n\n",         "don't",  "42",
      "...",  "\t",   "\xC3\xA9", "\xC2\xA0", " \xE2\x82\xAC", "!?\r\n", "\xFF"};
  std::string text;
  while (text.size() < 3'300'000)
    text += parts[static_cast<std::size_t>(random.below(static_cast<Index>(parts.size())))];
  const Tokenizer tokenizer = Tokenizer::train({{text.substr(0, 20'000)}}, 400);
  const std::vector<std::int32_t> whole = tokenizer.encode(text, {.add_special_tokens = false}).ids;
  const Corpus corpus(folder.write("t", text), tokenizer);
  ASSERT_EQ(corpus.tokens(), static_cast<Index>(whole.size()) + 2);
  for (std::size_t i = 0; i < whole.size(); ++i)
    ASSERT_EQ(corpus.token(static_cast<Index>(i) + 1), whole[i]) << i;
}

/// The tokenizer of bytes as a file says it, with changes to the file.
Tokenizer changed_tokenizer(const std::string& before, const std::string& after) {
  const TextFolder folder;
  const std::string file = folder / "tokenizer.json";
  Tokenizer::train({{"abc"}}, 258).save(file);
  std::string json = get(file);
  EXPECT_NE(json.find(before), std::string::npos) << json;
  for (std::size_t at = 0; (at = json.find(before)) != std::string::npos;)
    json.replace(at, before.size(), after);
  put(file, json);
  return Tokenizer::load(file);
}

TEST(TextData, WithoutEndsNobodyGuessesHowTheNextDocumentBegins) {
  const TextFolder folder;
  const Tokenizer tokenizer = changed_tokenizer("<|endoftext|>", "<|x|>");
  ASSERT_FALSE(tokenizer.eos().has_value());
  for (int i = 0; i < 9; ++i) folder.write("t/" + std::to_string(i), "ab");
  folder.write("t/9", "cc");
  const std::int32_t a = tokenizer.encode("a", {.add_special_tokens = false}).ids[0],
                     b = tokenizer.encode("b", {.add_special_tokens = false}).ids[0];
  // 20 tokens, nothing held out: windows of 4 in the first 17 to 20.
  DataOptions options{.path = folder / "t", .batch_size = 4, .tokens = 4, .eval_batches = {}};
  const Batch batch = open_data(options, tokenizer)->batch(0);
  for (std::size_t i = 0; i < 16; ++i) {
    EXPECT_TRUE(batch.inputs[i] != a || batch.targets[i] == b);
    EXPECT_TRUE(batch.inputs[i] != b || batch.targets[i] == -1);
  }
  EXPECT_EQ(batch.counted() + std::count(batch.inputs.begin(), batch.inputs.end(), b), 16);
  for (const Index length : batch.documents) EXPECT_LE(length, 2);
  options.separate_documents = false;
  EXPECT_EQ(open_data(options, tokenizer)->batch(0).counted(), 16);
}

TEST(Corpus, FingerprintTellsTextsAndTheirPartingApart) {
  const TextFolder folder;
  folder.write("1/a", "abcd");
  folder.write("2/a", "abce");
  folder.write("3/a", "ab");
  folder.write("3/b", "cd");
  folder.write("4/q", "abcd");
  const auto print = [&](const char* name) {
    return Corpus(folder / name, Tokenizer::bytes()).fingerprint();
  };
  EXPECT_EQ(print("1"), print("4"));
  EXPECT_NE(print("1"), print("2"));
  EXPECT_NE(print("1"), print("3"));
}

TEST(SplitPlace, IsTheNearestDocumentOrInsideOne) {
  const TextFolder folder;
  for (int i = 0; i < 20; ++i) folder.write("many/" + std::to_string(10 + i), std::string(9, 'x'));
  folder.write("one/a", std::string(198, 'x'));
  folder.write("two/a", std::string(20, 'x'));
  folder.write("two/b", std::string(177, 'x'));
  const auto place = [&](const char* name, double held_out) {
    return split_place(Corpus(folder / name, Tokenizer::bytes()), held_out);
  };
  EXPECT_EQ(place("many", 0.1), 180);   // 201 tokens, 20 of them held out: 181 wanted
  EXPECT_EQ(place("many", 0.13), 180);  // 175 wanted; of two as near, the later
  EXPECT_EQ(place("one", 0.1), 180);    // 200 tokens; documents begin at 0 only
  EXPECT_EQ(place("two", 0.1), 180);    // 200 tokens; a document begins at 21, too far
}

TEST(TextData, HoldsExactlyTheWindowsOfTheText) {
  const TextFolder folder;
  const std::string text = counting_text(1000);
  const auto data = opened_text({.path = folder.write("t", text),
                                 .batch_size = 3,
                                 .tokens = 32,
                                 .eval_batches = 2,
                                 .eval_fraction = 0.2});
  EXPECT_EQ(data->vocab_size(), 258);
  EXPECT_EQ(data->items_per_epoch(), 25);  // (802 - 1) / 32, 802 = 1002 - 200
  const std::string whole = '\0' + text + '\0';
  for (Index step = 0; step < 30; ++step) {
    const Batch batch = data->batch(step);
    EXPECT_EQ(batch.items, 3);
    EXPECT_EQ(batch.tokens, 32);
    ASSERT_EQ(batch.inputs.size(), 96u);
    ASSERT_EQ(batch.targets.size(), 96u);
    EXPECT_EQ(batch.counted(), 96);
    EXPECT_EQ(batch.documents, (std::vector<Index>{32, 32, 32}));
    for (std::size_t item = 0; item < 3; ++item) {
      std::string piece;
      for (std::size_t i = item * 32; i < item * 32 + 32; ++i) {
        piece += batch.inputs[i] == 256 ? '\0' : static_cast<char>(batch.inputs[i]);
        EXPECT_TRUE(i % 32 == 0 || batch.targets[i - 1] == batch.inputs[i]);
      }
      const std::size_t at = whole.find(piece);
      ASSERT_NE(at, std::string::npos);
      EXPECT_LE(at + 33, 802u);  // nothing of what is held out, not even as a target
      EXPECT_EQ(batch.targets[item * 32 + 31], static_cast<unsigned char>(whole[at + 32]));
    }
  }
  Index items = 0;
  for (Index i = 0; i < data->eval_batches(); ++i) {
    const Batch batch = data->eval_batch(i);
    items += batch.items;
    for (Index item = 0; item < batch.items; ++item) {
      std::string piece;
      for (Index t = 0; t < 32; ++t)
        piece += static_cast<char>(batch.inputs[static_cast<std::size_t>(item * 32 + t)]);
      const std::size_t at = whole.find(piece);
      ASSERT_NE(at, std::string::npos);
      EXPECT_GE(at, 802u);
      EXPECT_EQ((at - 802) % 32, 0u);
    }
  }
  EXPECT_EQ(items, 6);  // of (200 - 1) / 32 = 6 windows, two batches of three
}

TEST(TextData, IsAFunctionOfTheStep) {
  const TextFolder folder;
  const std::string path = folder.write("t", counting_text(5000));
  for (const Objective learning : {Objective::next_token, Objective::masked_token}) {
    const DataOptions options{.path = path, .objective = learning, .batch_size = 4, .tokens = 48};
    const auto data = opened_text(options), again = opened_text(options);
    DataOptions other = options;
    other.seed = 2;
    const auto different = opened_text(other);
    EXPECT_EQ(data->fingerprint(), again->fingerprint());
    EXPECT_NE(data->fingerprint(), different->fingerprint());
    std::vector<Batch> batches;
    for (Index step = 0; step < 50; ++step) batches.push_back(data->batch(step));
    for (const Index step : {49, 3, 27, 0, 27}) {
      EXPECT_EQ(data->batch(step), batches[static_cast<std::size_t>(step)]);
      EXPECT_EQ(again->batch(step), batches[static_cast<std::size_t>(step)]);
      EXPECT_NE(different->batch(step), batches[static_cast<std::size_t>(step)]);
    }
    EXPECT_EQ(data->eval_batch(0), again->eval_batch(0));
    EXPECT_NO_THROW(data->batch(Index{1} << 50));
  }
}

TEST(TextData, DocumentsCoverItemsAndMeetWhereTextsEnd) {
  const TextFolder folder;
  RandomStream random(1);
  for (int i = 0; i < 60; ++i)
    folder.write(std::to_string(100 + i),
                 std::string(static_cast<std::size_t>(1 + random.below(60)),
                             static_cast<char>('a' + i % 26)));
  DataOptions options{.path = folder.path(), .batch_size = 5, .tokens = 64};
  const auto data = opened_text(options);
  Index parted = 0;
  for (Index step = 0; step < 20; ++step) {
    const Batch batch = data->batch(step);
    Index place = 0;
    for (const Index length : batch.documents) {
      ASSERT_GE(length, 1);
      EXPECT_EQ(place / 64, (place + length - 1) / 64);  // inside one item
      std::set<std::int32_t> letters;
      for (Index i = place; i < place + length; ++i) {
        const std::int32_t token = batch.inputs[static_cast<std::size_t>(i)];
        if (token == 256)
          EXPECT_EQ(i, place);  // opens a document, or its item
        else
          letters.insert(token);
      }
      EXPECT_LE(letters.size(), 1u);
      place += length;
    }
    EXPECT_EQ(place, batch.items * batch.tokens);
    EXPECT_EQ(batch.counted(), batch.items * batch.tokens);
    parted += static_cast<Index>(batch.documents.size()) - batch.items;
  }
  EXPECT_GT(parted, 100);
  options.separate_documents = false;
  const auto joined = opened_text(options);
  Batch batch = data->batch(3);
  batch.documents.clear();
  EXPECT_EQ(joined->batch(3), batch);
}

TEST(TextData, HeldOutDataMayHaveTheirOwnPath) {
  const TextFolder folder;
  DataOptions options{.path = folder.write("a", std::string(100, 'a')),
                      .batch_size = 2,
                      .tokens = 16,
                      .eval_path = folder.write("b", std::string(100, 'b'))};
  const auto data = opened_text(options);
  EXPECT_EQ(data->items_per_epoch(), 6);  // (102 - 1) / 16: all of it
  EXPECT_EQ(data->eval_batches(), 3);
  for (Index i = 0; i < 3; ++i) {
    const Batch batch = data->eval_batch(i);
    EXPECT_EQ(std::count(batch.inputs.begin(), batch.inputs.end(), 'a'), 0);
  }
  options.eval_batches.reset();
  EXPECT_EQ(opened_text(options)->eval_batches(), 0);
  EXPECT_EQ(opened_text(options)->items_per_epoch(), 6);
}

TEST(TextData, EqualDocumentsAreDataToo) {  // CO-10
  const TextFolder folder;
  for (int i = 0; i < 30; ++i) folder.write(std::to_string(i), "same text");
  const auto data = opened_text({.path = folder.path(), .batch_size = 2, .tokens = 8});
  EXPECT_EQ(data->batch(0).counted(), 16);
}

TEST(TextData, DescribesItself) {
  const TextFolder folder;
  const std::string path = folder.write("t", counting_text(3000));
  const auto data = opened_text({.path = path, .tokens = 32});
  EXPECT_EQ(data->describe(),
            path + ": 1 file, 2,852 tokens in 89 windows of 32; 150 tokens held out");
}

}  // namespace
}  // namespace rapt::test
