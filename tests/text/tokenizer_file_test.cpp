#include <gtest/gtest.h>

#include <algorithm>

#include "formats/config/json.h"
#include "rapt/models/tokenizer.h"
#include "support/temporary_folder.h"
#include "support/tokenizers.h"
#include "text/stages/byte_letters.h"

namespace rapt::test {
using namespace detail;
namespace {

using Ids = std::vector<std::int32_t>;

/// A tokenizer.json as others write it: the bytes in the order of their letters, then "ab", "abc",
/// " a" and a special token.
Json sound_file() {
  Json vocabulary = Json::object();
  std::vector<std::string> letters;
  for (int byte = 0; byte < 256; ++byte)
    letters.push_back(letters_of(std::string(1, static_cast<char>(byte))));
  std::sort(letters.begin(), letters.end());
  for (const std::string& letter : letters) vocabulary[letter] = vocabulary.size();
  for (const char* token : {"ab", "abc", "\u0120a"}) vocabulary[token] = vocabulary.size();
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"added_tokens",
           Json::array({{{"id", 259}, {"content", "<|endoftext|>"}, {"special", true}}})},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"post_processor", {{"type", "ByteLevel"}, {"trim_offsets", true}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", ""},
            {"vocab", vocabulary},
            {"merges", {"a b", "ab c", "\u0120 a"}}}}};
}

class TokenizerFile : public ::testing::Test {
 protected:
  Tokenizer read(const Json& file) const {
    put(path_, file.dump());
    return Tokenizer::load(path_);
  }
  /// The sound file with the value at a JSON pointer replaced.
  void refused(const std::string& pointer, const Json& value,
               std::vector<std::string> words) const {
    Json file = sound_file();
    file[Json::json_pointer(pointer)] = value;
    words.push_back(path_);
    SCOPED_TRACE(pointer + " = " + value.dump().substr(0, 200));
    expect_broken([&] { read(file); }, words);
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "tokenizer.json";
};

TEST_F(TokenizerFile, OfOthersIsRead) {
  const Tokenizer tokenizer = read(sound_file());
  EXPECT_EQ(tokenizer.vocab_size(), 260);
  EXPECT_EQ(tokenizer.eos(), 259);
  EXPECT_EQ(tokenizer.pad(), std::nullopt);
  EXPECT_EQ(tokenizer.encode("abcab a", text_only).ids, (Ids{257, 256, 258}));
  EXPECT_EQ(tokenizer.token_bytes(258), " a");
  EXPECT_EQ(tokenizer.token_to_id(" a"), 258);
}

TEST_F(TokenizerFile, MergesHaveTwoSpellings) {
  Json file = sound_file();
  file["model"]["merges"] = Json::array(
      {Json::array({"a", "b"}), Json::array({"ab", "c"}), Json::array({"\u0120", "a"})});
  EXPECT_EQ(read(file).encode("abcab a", text_only).ids, (Ids{257, 256, 258}));
  file["model"].erase("type");  // files of old
  EXPECT_EQ(read(file).encode("abcab a", text_only).ids, (Ids{257, 256, 258}));
}

TEST_F(TokenizerFile, AddedWordsAreFoundFirstLongestFirst) {
  Json file = sound_file();
  const auto add = [&](int id, const char* content) {
    file["added_tokens"].push_back({{"id", id}, {"content", content}, {"special", false}});
  };
  add(260, "abc!"), add(261, "bc"), add(262, "bc!!");
  const Tokenizer tokenizer = read(file);
  EXPECT_EQ(tokenizer.encode("abc!", text_only).ids, Ids{260});
  EXPECT_EQ(tokenizer.encode("bc!!bc", text_only).ids, (Ids{262, 261}));
  EXPECT_EQ(tokenizer.encode("<|endoftext|>", text_only).ids.size(), 13u);  // TK-16
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("xbcabc!y", text_only).ids), "xbcabc!y");
}

TEST_F(TokenizerFile, WholeWordsGoBeforeMerges) {
  Json file = sound_file();
  file["model"]["merges"] = Json::array();
  EXPECT_EQ(read(file).encode("abc", text_only).ids.size(), 3u);
  file["model"]["ignore_merges"] = true;
  EXPECT_EQ(read(file).encode("abc", text_only).ids, Ids{257});
}

TEST_F(TokenizerFile, MergesThatCannotBe) {
  refused("/model/merges", Json{"a b", "b c"},
          {"merges[1]", "\"bc\"", "not in model.vocab"});  // TK-01
  const std::string endless(500, 'x');
  refused("/model/merges", Json{endless + " " + endless}, {"merges[0]", "not in model.vocab"});
  refused("/model/merges", Json{"zz b"}, {"needs the token \"zz\""});  // TK-02
  for (const Json& merge : {Json("a b c"), Json("ab"), Json("a  b"), Json(3), Json({"a"}),
                            Json({"a", "b", "c"}), Json({"a", 3}), Json(nullptr), Json::object()})
    refused("/model/merges", Json::array({merge}), {"merges[0]", "expected two tokens"});
  refused("/model/merges", Json{" ab"}, {"needs the token \"\""});
  refused("/model/merges", Json{"a b", "a b"}, {"merge 1 occurs twice"});
  refused("/model/merges", Json("a b"), {"model.merges is not a list"});
  refused("/model/merges", nullptr, {"model.merges is not a list"});
  refused("/model/continuing_subword_prefix", "##",
          {"merges[0] has a right part \"b\"", "continuing_subword_prefix"});  // TK-03
}

TEST_F(TokenizerFile, IdsThatCannotBe) {
  for (const Json& id : {Json(2147483647), Json(std::uint64_t{1} << 63), Json(-1), Json(1.5),
                         Json("7"), Json(nullptr), Json(260)})  // TK-04, TK-05
    refused("/model/vocab/ab", id, {"\"ab\" has the id", "expected 0 to 259"});
  refused("/model/vocab/ab", 257, {"id 257 belongs to", "\"ab\"", "\"abc\""});
  refused("/added_tokens/0/id", 258, {"id 258 belongs to", "<|endoftext|>"});
  refused("/added_tokens/0/id", 300,
          {"\"<|endoftext|>\" has the id 300, expected 0 to 259"});  // TK-07
  refused("/model/vocab/ab", 259, {"id 259 belongs to"});
  Json file = sound_file();
  file["model"]["vocab"].erase("!");
  expect_broken([&] { read(file); }, {"expected 0 to"});
  file = sound_file();
  file["model"]["vocab"].erase("!");
  file["model"]["vocab"]["!!"] = 0;  // every id, but a byte that has none
  EXPECT_EQ(read(file).encode("a!b", text_only).ids, (Ids{64, 65}));  // it is lost, as with others
  file["model"]["unk_token"] = "abc";
  EXPECT_EQ(read(file).encode("!", text_only).ids.size(), 1u);
  file = sound_file();
  file["added_tokens"] = Json::array();
  file["model"]["vocab"]["abc"] = 259;
  expect_broken([&] { read(file); }, {"expected 0 to 258"});
}

TEST_F(TokenizerFile, AddedTokensThatCannotBe) {
  refused("/added_tokens/0/content", std::string(129, 'x'), {"longer than 128 bytes"});
  refused("/added_tokens/0/content", 3, {"added_tokens.content is 3"});
  refused("/added_tokens/0", 3, {"added_tokens is 3"});
  refused("/added_tokens", "x", {"added_tokens is not a list"});
  Json file = sound_file();
  file["added_tokens"].push_back(file["added_tokens"][0]);
  expect_broken([&] { read(file); }, {"id 259 is added twice"});
  file = sound_file();
  file["added_tokens"][0]["content"] = "ab";  // a token of the model under another id
  expect_broken([&] { read(file); }, {"token \"ab\" has the ids 256 and 259"});
}

TEST_F(TokenizerFile, PartsThatAreNotSupported) {  // TK-10
  refused("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", 3}}, {"pretokenizers"});
  refused("/pre_tokenizer", {{"type", "Sequence"}}, {"pretokenizers is not a list"});
  refused("/pre_tokenizer", {{"type", "UnicodeScripts"}}, {"type \"UnicodeScripts\""});
  const Json letters{{"type", "ByteLevel"}}, spaces{{"type", "Metaspace"}};
  for (const Json& after : {letters, spaces})
    refused("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {letters, after}}},
            {"after ByteLevel", "only split"});
  refused("/pre_tokenizer/add_prefix_space", 3, {"pre_tokenizer.add_prefix_space is 3"});
  refused("/model/type", "Unigram", {"model.vocab is not a list"});
  refused("/model/type", "Trigram", {"model of type \"Trigram\""});
  refused("/model/unk_token", "[NO]", {"model.unk_token is \"[NO]\"", "not in model.vocab"});
  refused("/model/dropout", 0.1, {"dropout"});
  refused("/model/vocab", Json::array(), {"model.vocab is not an object"});
  refused("/model", nullptr, {"model.vocab is not an object"});
  refused("/model", 3, {"model is 3, expected an object"});
  refused("/normalizer", {{"type", "Uppercase"}}, {"normalizer of type \"Uppercase\""});
  refused("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "A"}},
          {"precompiled_charsmap is not base64"});  // TK-11
  refused("/decoder", {{"type", "CTC"}}, {"decoder of type \"CTC\""});
  refused("/post_processor", {{"type", "Bracket"}}, {"post_processor of type \"Bracket\""});
}

TEST_F(TokenizerFile, TextThatCannotBe) {
  Json file = sound_file();
  file["model"]["vocab"]["\u65e5"] = 260;  // TK-12: a letter that stands for no byte
  file["added_tokens"].push_back({{"id", 260}, {"content", "\u65e5"}, {"special", false}});
  EXPECT_EQ(read(file).encode("\u65e5", text_only).ids, Ids{260});
  std::string text = sound_file().dump();
  text.replace(text.find("\"ab\""), 4, "\"\\ud800\"");
  put(path_, text);
  expect_broken([&] { Tokenizer::load(path_); }, {path_, "JSON at byte", "surrogate"});
  text = sound_file().dump();
  text.replace(text.find("\"ab\""), 4, "\"abc\"");
  put(path_, text);
  expect_broken([&] { Tokenizer::load(path_); }, {path_, "key \"abc\" occurs twice"});
  std::string nested;  // TK-19
  for (int i = 0; i < 100'000; ++i) nested += R"({"type":"Sequence","decoders":[)";
  put(path_, "{\"decoder\":" + nested);
  expect_broken([&] { Tokenizer::load(path_); }, {path_, "nested deeper than 64"});
  put(path_, "");
  expect_broken([&] { Tokenizer::load(path_); }, {path_, "JSON at byte 0"});
  expect_broken([&] { Tokenizer::load(folder_ / "none"); }, {"none", "No such file"});
}

}  // namespace
}  // namespace rapt::test
