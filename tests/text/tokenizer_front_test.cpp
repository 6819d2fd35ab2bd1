#include <gtest/gtest.h>

#include "support/tokenizers.h"

// Metaspace puts its letter before the piece that begins where the text began. Which one that is
// after a normalizer, the tokenizers library tells by what each character stands for.
namespace rapt::test {
namespace {

const Json first{{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}};

Json sequence(const char* list, const std::vector<Json>& steps) {
  return {{"type", "Sequence"}, {list, steps}};
}

/// The letters that the model is given, with | where a word ends.
std::string words_of(const Json& normalizer, const Json& pre_tokenizer, const std::string& text) {
  Json vocabulary = Json::object();
  for (const char* letter : {"\u2581", "a", "b", "x", "y", "<", "s", ">"})
    for (const char* end : {"", "|"}) vocabulary[letter + std::string(end)] = vocabulary.size();
  const Json file{{"version", "1.0"},
                  {"added_tokens", {added_token(16, "<s>", true)}},
                  {"normalizer", normalizer},
                  {"pre_tokenizer", pre_tokenizer},
                  {"post_processor", nullptr},
                  {"decoder", {{"type", "Fuse"}}},
                  {"model",
                   {{"type", "BPE"},
                    {"vocab", vocabulary},
                    {"merges", Json::array()},
                    {"end_of_word_suffix", "|"}}}};
  const TemporaryFolder folder;
  put(folder / "tokenizer.json", file.dump());
  const Tokenizer tokenizer = Tokenizer::load(folder / "tokenizer.json");
  const EncodeOptions how{.parse_special = true};
  return tokenizer.decode(tokenizer.encode(text, how).ids,
                          DecodeOptions{.skip_special_tokens = false});
}

Json dropped(char letter) {
  return {{"type", "Precompiled"}, {"precompiled_charsmap", table_of_one(letter, "")}};
}
Json replaced(const Json& pattern, const char* content) {
  return {{"type", "Replace"}, {"pattern", pattern}, {"content", content}};
}

TEST(TokenizerFront, WhatFollowsADroppedCharacterTakesItsPlace) {
  EXPECT_EQ(words_of(dropped('\x07'), first,
                     "\x07"
                     "ab"),
            "\u2581ab|");
  EXPECT_EQ(words_of(dropped('\x07'), first,
                     "\x07\x07"
                     "a b"),
            "\u2581a|\u2581b|");
  EXPECT_EQ(words_of(dropped('\x07'), first,
                     "a\x07"
                     "b"),
            "\u2581ab|");
  EXPECT_EQ(words_of(dropped('\x07'), first, "\x07"), "");
  EXPECT_EQ(words_of(dropped('\x07'), first,
                     "<s>\x07"
                     "ab"),
            "<s>ab|");  // not at the beginning
}

TEST(TokenizerFront, WhatIsFilteredOutLeavesNothingFirst) {
  const Json filter{{"type", "Nmt"}};
  EXPECT_EQ(words_of(filter, first,
                     "\x07"
                     "ab"),
            "ab|");
  EXPECT_EQ(
      words_of({{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}}, first, " ab"),
      "ab|");
}

TEST(TokenizerFront, AReplacementStandsForTheLastCharacterOfItsMatch) {
  EXPECT_EQ(words_of(replaced({{"String", "ab"}}, "x"), first, "abab"), "xx|");
  EXPECT_EQ(words_of(replaced({{"String", "a"}}, "xy"), first, "ab"), "\u2581xyb|");
  EXPECT_EQ(words_of(replaced({{"String", "a"}}, ""), first, "ab"), "b|");
}

TEST(TokenizerFront, ALetterBeforeATextStandsForItsFirstOne) {
  Json whole = first;
  whole["split"] = false;
  const Json cut{{"type", "Split"}, {"pattern", {{"String", "\u2581"}}}, {"behavior", "Isolated"}};
  EXPECT_EQ(words_of(nullptr, sequence("pretokenizers", {whole, cut, whole}), "ab"),
            "\u2581|\u2581ab|");
  const Json before{{"type", "Prepend"}, {"prepend", "xy"}};
  EXPECT_EQ(words_of(before, first, "ab"), "\u2581xyab|");
  EXPECT_EQ(words_of(sequence("normalizers", {before, dropped('x')}), first, "ab"), "\u2581yab|");
}

TEST(TokenizerFront, OnlyTheFirstPieceIsFirst) {
  const Json spaces{{"type", "WhitespaceSplit"}};
  EXPECT_EQ(words_of(nullptr, sequence("pretokenizers", {spaces, first}), "ab b"), "\u2581ab|b|");
  EXPECT_EQ(words_of(nullptr, sequence("pretokenizers", {spaces, first}), " ab"), "ab|");
  EXPECT_EQ(words_of(nullptr, first, "<s>ab"), "<s>ab|");
  EXPECT_EQ(words_of(nullptr, first, "a<s>b"), "\u2581a|<s>b|");
}

}  // namespace
}  // namespace rapt::test
