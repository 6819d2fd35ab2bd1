#include "rapt/models/tokenizer.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "support/cpu_time.h"
#include "support/refused.h"
#include "support/temporary_folder.h"
#include "support/tokenizers.h"
#include "text/stages/byte_letters.h"
#include "text/stages/word_cutter.h"

namespace rapt::test {
using namespace detail;
namespace {

using Ids = std::vector<std::int32_t>;

std::string all_bytes() {
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text += static_cast<char>(byte);
  return text;
}

std::vector<std::string> words_of(Cut cut, std::string_view text) {
  std::vector<std::string> words;
  WordCutter(cut).for_each_word(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

/// Byte-pair encoding as it is defined, with nothing clever: count all pairs, merge the best.
std::vector<std::pair<std::string, std::string>> plain_merges(const std::vector<std::string>& texts,
                                                              std::size_t merges) {
  std::map<std::vector<std::string>, Index> words;
  for (const std::string& text : texts)
    for (const std::string& word : words_of(Cut::gpt2, text)) {
      std::vector<std::string> letters;
      for (const char letter : word) letters.emplace_back(1, letter);
      ++words[letters];
    }
  std::map<std::string, std::size_t> order;  // single bytes by letter, then as they are made
  const std::string bytes = all_bytes();
  for (const char byte : bytes)
    order[std::string(1, byte)] = letter_of(static_cast<std::uint8_t>(byte));
  std::vector<std::pair<std::string, std::string>> result;
  while (result.size() < merges) {
    std::map<std::pair<std::string, std::string>, Index> counts;
    for (const auto& [word, count] : words)
      for (std::size_t i = 0; i + 1 < word.size(); ++i) counts[{word[i], word[i + 1]}] += count;
    std::pair<std::string, std::string> best;
    Index most = 1;
    for (const auto& [pair, count] : counts) {
      const auto rank = [&](const auto& p) { return std::pair(order[p.first], order[p.second]); };
      if (count > most || (count == most && most > 1 && rank(pair) < rank(best)))
        best = pair, most = count;
    }
    if (most < 2) break;
    result.push_back(best);
    order.try_emplace(best.first + best.second, 1000 + order.size());
    std::map<std::vector<std::string>, Index> merged;
    for (const auto& [word, count] : words) {
      std::vector<std::string> next;
      for (std::size_t i = 0; i < word.size(); ++i) {
        const bool here =
            i + 1 < word.size() && word[i] == best.first && word[i + 1] == best.second;
        next.push_back(here ? word[i] + word[i + 1] : word[i]);
        i += here;
      }
      merged[next] += count;
    }
    words = std::move(merged);
  }
  return result;
}

std::string random_text(std::uint32_t seed, std::size_t length) {
  static const std::vector<std::string> parts{"a",        "b",
                                              "aa",       "ab",
                                              "abab",     " ",
                                              "  ",       "\n",
                                              "'s",       "'ll",
                                              "the ",     "é",
                                              "日本",     "1",
                                              "42",       "!",
                                              "?!",       "\t",
                                              "\xFF",     "\xE2\x82",
                                              "\xC3",     "\xF0\x9F\x98\x80",
                                              "\xC2\xA0", "<|endoftext|>"};
  std::mt19937 random(seed);
  std::string text;
  while (text.size() < length) text += parts[random() % parts.size()];
  return text;
}

TEST(Tokenizer, BytesAreTheirOwnIds) {
  const Tokenizer tokenizer = Tokenizer::bytes();
  EXPECT_EQ(tokenizer.vocab_size(), 258);
  EXPECT_EQ(tokenizer.eos(), 256);
  EXPECT_EQ(tokenizer.pad(), 257);
  const Ids ids = tokenizer.encode(all_bytes(), text_only).ids;
  for (int i = 0; i < 256; ++i) EXPECT_EQ(ids[static_cast<std::size_t>(i)], i);
  EXPECT_EQ(tokenizer.decode(ids), all_bytes());
  EXPECT_EQ(tokenizer.decode(Ids{104, 256, 105, 257}), "hi");
  EXPECT_EQ(tokenizer.token_bytes(256), "");
  EXPECT_EQ(tokenizer.encode("", text_only).ids, Ids{});
}

TEST(Tokenizer, UnknownIdsAreRefused) {  // TK-17
  const Tokenizer tokenizer = Tokenizer::bytes();
  for (const std::int32_t id : {-1, 258, std::numeric_limits<std::int32_t>::max()}) {
    expect_refused([&] { tokenizer.decode(Ids{0, id}); }, {std::to_string(id), "0 to 257"});
    expect_refused([&] { tokenizer.token_bytes(id); }, {std::to_string(id), "0 to 257"});
  }
}

TEST(Tokenizer, CutsAsGpt2Does) {
  EXPECT_EQ(words_of(Cut::gpt2, "I'll say  it's 42x!?\n\n end "),
            (std::vector<std::string>{"I", "'ll", " say", " ", " it", "'s", " 42", "x", "!?",
                                      "\n\n", " end", " "}));
  EXPECT_EQ(words_of(Cut::gpt2, "a\xFF\xFE b\xE2\x82"),
            (std::vector<std::string>{"a", "\xFF", "\xFE", " b", "\xE2", "\x82"}));
  EXPECT_EQ(words_of(Cut::gpt2, "\xC3\xA9t\xC3\xA9\xC2\xA0\xE3\x80\x80x"),
            (std::vector<std::string>{"\xC3\xA9t\xC3\xA9", "\xC2\xA0", "\xE3\x80\x80", "x"}));
  EXPECT_EQ(words_of(Cut::llama3, "12345 I'LL\r\n x"),
            (std::vector<std::string>{"123", "45", " I", "'LL", "\r\n", " x"}));
  EXPECT_EQ(words_of(Cut::qwen2, "12 x"), (std::vector<std::string>{"1", "2", " x"}));
  for (const Cut cut : {Cut::none, Cut::gpt2, Cut::llama3, Cut::qwen2}) {
    std::string joined;
    for (const std::string& word : words_of(cut, random_text(3, 5000))) joined += word;
    EXPECT_EQ(joined, random_text(3, 5000));
  }
}

TEST(Tokenizer, LearnsWhatTheDefinitionLearns) {
  for (std::uint32_t seed = 1; seed <= 12; ++seed) {
    const std::vector<std::string> texts{random_text(seed, 400), random_text(seed + 100, 300)};
    const auto merges = plain_merges(texts, 120);
    const Tokenizer tokenizer = Tokenizer::train(texts, 256 + 2 + 60);
    // In order, and each new: ids go up by one unless two pairs spell the same.
    std::int32_t next = 256;
    std::map<std::string, std::int32_t> ids;
    for (const auto& [left, right] : merges) {
      if (next == tokenizer.vocab_size() - 2) break;
      if (!ids.emplace(left + right, next).second) continue;
      EXPECT_EQ(tokenizer.token_bytes(next), left + right) << "seed " << seed << " id " << next;
      ++next;
    }
    EXPECT_EQ(next, tokenizer.vocab_size() - 2);
    EXPECT_EQ(tokenizer.eos(), next);
    EXPECT_EQ(tokenizer.pad(), next + 1);
  }
}

TEST(Tokenizer, EveryTextComesBack) {
  const std::vector<std::string> texts{random_text(1, 20'000)};
  const Tokenizer tokenizer = Tokenizer::train(texts, 600);
  for (std::uint32_t seed = 1; seed < 40; ++seed) {
    const std::string text = random_text(seed, 3000);
    const Ids ids = tokenizer.encode(text, text_only).ids;
    EXPECT_EQ(tokenizer.decode(ids), text);
    EXPECT_LT(ids.size(), text.size() / 2);
  }
  std::mt19937 random(7);
  std::string noise;
  for (int i = 0; i < 10'000; ++i) noise += static_cast<char>(random());
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(noise, text_only).ids), noise);
}

TEST(Tokenizer, LearningIsTheSameEveryTime) {
  std::vector<std::string> texts{random_text(5, 5000), random_text(6, 5000)};
  TemporaryFolder folder;
  Tokenizer::train(texts, 400).save(folder / "a");
  std::swap(texts[0], texts[1]);  // the order of texts says nothing
  Tokenizer::train(texts, 400).save(folder / "b");
  EXPECT_EQ(get(folder / "a"), get(folder / "b"));
}

TEST(Tokenizer, LearningEndsWhenNothingRepeats) {
  const Tokenizer tokenizer = Tokenizer::train(std::vector<std::string>{"abc"}, 1000);
  EXPECT_EQ(tokenizer.vocab_size(), 258);
  EXPECT_EQ(Tokenizer::train({}, 300).vocab_size(), 258);
  expect_refused([] { Tokenizer::train({}, 257); }, {"vocab_size is 257", "258"});
}

TEST(Tokenizer, SpecialTokensAreNotFoundInText) {  // TK-16
  std::string text;
  for (int i = 0; i < 50; ++i) text += "<|endoftext|><|padding|>";
  for (const Tokenizer& tokenizer :
       {Tokenizer::bytes(), Tokenizer::train(std::vector{text}, 400)}) {
    for (const std::int32_t id : tokenizer.encode(text, text_only).ids) {
      EXPECT_NE(id, *tokenizer.eos());
      EXPECT_NE(id, *tokenizer.pad());
    }
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, text_only).ids), text);
    EXPECT_EQ(tokenizer.token_to_id("<|endoftext|>"), tokenizer.eos());
    EXPECT_EQ(tokenizer.token_to_id("no such token"), std::nullopt);
  }
}

TEST(Tokenizer, FilesComeBack) {
  TemporaryFolder folder;
  const std::string text = random_text(9, 4000);
  for (const Tokenizer& tokenizer :
       {Tokenizer::bytes(), Tokenizer::train(std::vector{random_text(8, 9000)}, 500)}) {
    tokenizer.save(folder / "tokenizer.json");
    const Tokenizer back = Tokenizer::load(folder / "tokenizer.json");
    EXPECT_EQ(back.vocab_size(), tokenizer.vocab_size());
    EXPECT_EQ(back.eos(), tokenizer.eos());
    EXPECT_EQ(back.pad(), tokenizer.pad());
    EXPECT_EQ(back.encode(text, text_only).ids, tokenizer.encode(text, text_only).ids);
    for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id)
      EXPECT_EQ(back.token_bytes(id), tokenizer.token_bytes(id));
    back.save(folder / "again.json");
    EXPECT_EQ(get(folder / "again.json"), get(folder / "tokenizer.json"));
  }
}

double seconds_to_encode(const Tokenizer& tokenizer, const std::string& text) {
  const double start = cpu_seconds();
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, text_only).ids).size(), text.size());
  return cpu_seconds() - start;
}

TEST(Tokenizer, OddTextsTakeTimeInProportion) {  // TK-15
  const Tokenizer tokenizer =
      Tokenizer::train(std::vector{random_text(1, 20'000), std::string(5000, 'a')}, 600);
  const std::size_t size = 1 << 20;
  std::string marks;
  while (marks.size() < size) marks += "\xCC\x81";
  const auto repeated = [](std::string_view text, std::size_t times) {
    std::string result;
    for (std::size_t i = 0; i < times; ++i) result += text;
    return result;
  };
  for (const std::string& odd :
       {std::string(size, 'a'), std::string(size, '\0'), std::string(size, ' '), marks,
        std::string(size, '\xFF'), repeated(" \n", size / 2), repeated("\r\n", size / 2)}) {
    const double small = seconds_to_encode(tokenizer, odd);
    const double large = seconds_to_encode(tokenizer, repeated(odd, 4));
    EXPECT_LT(large, 16 * small + 0.5) << static_cast<int>(odd[0]);  // 4, were the clock quiet
    EXPECT_LT(small, 5);
  }
  // One word of a megabyte, to learn from.
  const double start = cpu_seconds();
  Tokenizer::train(std::vector{std::string(size, 'a') + std::string(size, 'b')}, 600);
  EXPECT_LT(cpu_seconds() - start, 10);
}

}  // namespace
}  // namespace rapt::test
