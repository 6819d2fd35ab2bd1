#include <gtest/gtest.h>

#include "support/tokenizers.h"
#include "text/models/byte_tokens.h"
#include "text/stages/byte_letters.h"
#include "text/tokenizer/tokenizer_parts.h"

// A token without letters: no text becomes it, and it becomes no text.
namespace rapt::test {
using namespace detail;
namespace {

class TokenizerEmpty : public ::testing::Test {
 protected:
  Tokenizer read(const Json& file) const {
    put(folder_ / "tokenizer.json", file.dump());
    return Tokenizer::load(folder_ / "tokenizer.json");
  }
  Tokenizer again(const Tokenizer& tokenizer) const {
    tokenizer.save(folder_ / "copy.json");
    return Tokenizer::load(folder_ / "copy.json");
  }
  static Json file_of(const Json& model, const Json& pre_tokenizer, const Json& decoder) {
    return {{"version", "1.0"},
            {"added_tokens", Json::array()},
            {"normalizer", nullptr},
            {"pre_tokenizer", pre_tokenizer},
            {"post_processor", nullptr},
            {"decoder", decoder},
            {"model", model}};
  }

  TemporaryFolder folder_;
};

const Json fuse{{"type", "Fuse"}};

// Lists by name: nlohmann takes a list of pairs for an object.
Json pair(const char* left, const Json& right) { return Json::array({left, right}); }
Json list_of(const std::vector<Json>& members) {
  Json list = Json::array();
  for (const Json& one : members) list.push_back(one);
  return list;
}

TEST_F(TokenizerEmpty, OfBpeIsNeverMade) {
  const Json merges = list_of({pair("a", "b"), pair("", "a"), pair("b", ""), pair("", "")});
  const Json model{
      {"type", "BPE"}, {"vocab", vocabulary_of({"", "a", "b", "ab"})}, {"merges", merges}};
  const Tokenizer tokenizer = read(file_of(model, nullptr, fuse));
  for (const Tokenizer& one : {tokenizer, again(tokenizer)}) {
    EXPECT_EQ(one.encode("abba", text_only).ids, (Ids{3, 2, 1}));
    EXPECT_TRUE(one.encode("", text_only).ids.empty());
    EXPECT_EQ(one.decode(Ids{0, 3, 0, 1}), "aba");
  }
}

/// Where it stands for unknown letters it does come out, and merges with its neighbours.
TEST_F(TokenizerEmpty, MayBeTheUnknownTokenOfBpe) {
  Json model{{"type", "BPE"},
             {"unk_token", ""},
             {"vocab", vocabulary_of({"", "a", "b"})},
             {"merges", list_of({pair("", "a")})}};
  const Tokenizer tokenizer = read(file_of(model, nullptr, fuse));
  EXPECT_EQ(tokenizer.encode("bxb", text_only).ids, (Ids{2, 0, 2}));
  EXPECT_EQ(tokenizer.encode("xa", text_only).ids, Ids{1});
  model["vocab"] = vocabulary_of({"a", "b"}), model["merges"] = Json::array();
  EXPECT_EQ(read(file_of(model, nullptr, fuse)).encode("bxb", text_only).ids,
            (Ids{1, 1}));  // it has none
}

TEST_F(TokenizerEmpty, OfUnigramIsNeverMade) {
  const Json model{
      {"type", "Unigram"},
      {"unk_id", 0},
      {"vocab", list_of({pair("<unk>", 0), pair("", 10), pair("a", -1), pair("b", -1.5)})}};
  const Tokenizer tokenizer = read(file_of(model, nullptr, fuse));
  EXPECT_EQ(tokenizer.encode("abxa", text_only).ids, (Ids{2, 3, 0, 2}));
  EXPECT_EQ(tokenizer.decode(Ids{1, 2, 1}), "a");
  EXPECT_EQ(again(tokenizer).encode("ab", text_only).ids, (Ids{2, 3}));
}

TEST_F(TokenizerEmpty, OfWordsIsNeverMade) {
  const Json spaces{{"type", "WhitespaceSplit"}};
  for (const char* type : {"WordPiece", "WordLevel"}) {
    const Json model{{"type", type},
                     {"unk_token", "<unk>"},
                     {"continuing_subword_prefix", ""},
                     {"max_input_chars_per_word", 100},
                     {"vocab", vocabulary_of({"<unk>", "", "a", "b"})}};
    const Tokenizer tokenizer = read(file_of(model, spaces, fuse));
    EXPECT_EQ(tokenizer.encode("a  x b", text_only).ids, (Ids{2, 0, 3})) << type;
    EXPECT_EQ(tokenizer.decode(Ids{1, 2}), "a") << type;
  }
}

TEST_F(TokenizerEmpty, AmongAddedOnesIsNotLookedFor) {
  const Json model{
      {"type", "BPE"}, {"vocab", vocabulary_of({"a", "b"})}, {"merges", Json::array()}};
  Json file = file_of(model, nullptr, fuse);
  file["added_tokens"] = list_of({added_token(2, "", true)});
  EXPECT_EQ(read(file).encode("ab", text_only).ids, (Ids{0, 1}));
  EXPECT_EQ(read(file).vocab_size(), 3);
}

TEST_F(TokenizerEmpty, OfGgufMayComeSeveralTimes) {
  TokenizerParts parts{.model = "gpt2", .pre = "gpt-2"};
  for (int byte = 0; byte < 256; ++byte)
    parts.tokens.push_back(letters_of(std::string(1, static_cast<char>(byte))));
  for (const char* token : {"", "ab", "", "<|end|>", ""}) parts.tokens.emplace_back(token);
  parts.types.assign(parts.tokens.size(), 1);
  parts.types[259] = 3, parts.types[260] = 3;
  parts.merges = {"a b", "a "};  // the second joins a letter and nothing
  const Tokenizer tokenizer = tokenizer_from_parts(parts, "test");
  for (const Tokenizer& one : {tokenizer, again(tokenizer)}) {
    EXPECT_EQ(one.encode("aab", text_only).ids, (Ids{'a', 257}));
    EXPECT_EQ(one.decode(Ids{256, 257, 256}), "ab");
    EXPECT_EQ(one.vocab_size(), 261);
    EXPECT_EQ(one.decode(Ids{258, 'a'}), "a");
  }
}

TEST_F(TokenizerEmpty, OfSentencePieceAndBertFiles) {
  TokenizerParts llama{.model = "llama",
                       .tokens = {"<unk>", "", "\u2581", "a", "\u2581a"},
                       .scores = {0, 5, -1, -2, -3},
                       .types = {2, 1, 1, 1, 1},
                       .special = {.unk = 0},
                       .add_bos = false};
  EXPECT_EQ(tokenizer_from_parts(llama, "test").encode("a a", text_only).ids, (Ids{4, 4}));
  EXPECT_EQ(tokenizer_from_parts(llama, "test").decode(Ids{4, 1, 4}), "a a");
  const TokenizerParts bert{.model = "bert",
                            .tokens = {"[UNK]", "[CLS]", "[SEP]", "", "\u2581a", "b"},
                            .special = {.unk = 0}};
  EXPECT_EQ(tokenizer_from_parts(bert, "test").encode("ab a", text_only).ids, (Ids{4, 5, 4}));
  EXPECT_EQ(tokenizer_from_parts(bert, "test").encode("#", text_only).ids, Ids{0});
}

}  // namespace
}  // namespace rapt::test
