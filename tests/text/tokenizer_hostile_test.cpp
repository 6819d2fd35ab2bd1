#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "support/refused.h"
#include "support/tokenizers.h"
#include "text/models/byte_tokens.h"

// Files whose parts are sound one by one, but not what they make together (numerics.md 2.4).
namespace rapt::test {
using namespace detail;
namespace {

/// Words of single letters, and what is asked of text on the way in and out.
Json letters_file(const Json& normalizer, const Json& decoder = {{"type", "Fuse"}}) {
  return {{"added_tokens", Json::array()},
          {"normalizer", normalizer},
          {"decoder", decoder},
          {"model",
           {{"type", "BPE"}, {"vocab", vocabulary_of({"a", "b"})}, {"merges", Json::array()}}}};
}

Json replacing(const char* from, const std::string& to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

TEST(TokenizerHostile, NormalizersDoNotMakeTextEndless) {
  EXPECT_EQ(tokenizer_of(letters_file(replacing("a", "bb"))).encode("aa", text_only).ids,
            (Ids{1, 1, 1, 1}));
  const Tokenizer doubles = tokenizer_of(letters_file(
      {{"type", "Sequence"}, {"normalizers", std::vector<Json>(60, replacing("a", "aa"))}}));
  expect_broken([&] { doubles.encode("a", text_only).ids; },
                {"normalizer makes more than 65600 bytes"});
  EXPECT_TRUE(doubles.encode("", text_only).ids.empty());
  const Tokenizer longer = tokenizer_of(letters_file(replacing("a", std::string(1000, 'b'))));
  EXPECT_EQ(longer.encode("a", text_only).ids.size(), 1000u);
  expect_broken([&] { longer.encode(std::string(1'000'000, 'a'), text_only).ids; },
                {"more than 64065536 bytes"});
  expect_broken([] { tokenizer_of(letters_file(replacing("a", std::string(1001, 'b')))); },
                {"normalizer.content", "expected at most 1000 bytes"});
  Json file = letters_file(
      {{"type", "Sequence"}, {"normalizers", std::vector<Json>(60, replacing("a", "aa"))}});
  file["added_tokens"] = Json::array({{{"id", 2}, {"content", "xa"}, {"normalized", true}}});
  expect_broken([&] { tokenizer_of(file); }, {"normalizer makes more than"});
}

TEST(TokenizerHostile, DecodersDoNotMakeTextEndless) {
  const Json twice = replacing("a", "aa");
  const Tokenizer doubles = tokenizer_of(
      letters_file(nullptr, {{"type", "Sequence"}, {"decoders", std::vector<Json>(60, twice)}}));
  expect_broken([&] { doubles.decode(Ids{0}); }, {"decoder makes more than 65600 bytes"});
  EXPECT_EQ(doubles.decode(Ids{1}), "b");
  expect_broken([&] { tokenizer_of(letters_file(nullptr, replacing("a", std::string(101, 'b')))); },
                {"decoder.content", "expected at most 100 bytes"});
}

TEST(TokenizerHostile, DecodingTakesTimeInProportion) {
  const Json steps =
      Json::array({{{"type", "Fuse"}}, {{"type", "Metaspace"}, {"replacement", "a"}}});
  const Tokenizer tokenizer =
      tokenizer_of(letters_file(nullptr, {{"type", "Sequence"}, {"decoders", steps}}));
  const auto seconds = [&](std::size_t count) {
    const Ids ids(count, 0);
    const auto start = std::chrono::steady_clock::now();
    tokenizer.decode(ids);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  seconds(100'000);
  EXPECT_LT(seconds(3'200'000), 32 * 20 * seconds(100'000) + 1);  // 1024 times, were it squared
}

TEST(TokenizerHostile, BytesHaveOneSpelling) {  // TK-06
  for (const char* odd : {"<0x-1>", "<0xZZ>", "<0x100>", "<0x1>", "<0X0A>", "0x0A", "<0x0A", ""})
    EXPECT_EQ(byte_of_token(odd), std::nullopt) << odd;
  EXPECT_EQ(byte_of_token("<0x0a>"), 10);
  // In a tokenizer.json such a token is a word like any other; it never stands for a byte.
  Json file = letters_file(nullptr, {{"type", "ByteFallback"}});
  file["model"]["vocab"] = vocabulary_of({"<0x-1>", "<0x61>", "<unk>"});
  file["model"]["byte_fallback"] = true;
  file["model"]["unk_token"] = "<unk>";
  const Tokenizer tokenizer = tokenizer_of(file);
  EXPECT_EQ(tokenizer.encode("a", text_only).ids, Ids{1});
  EXPECT_EQ(tokenizer.encode("\xC3\xBF", text_only).ids, Ids{2});
  EXPECT_EQ(tokenizer.decode(Ids{0, 1}), "<0x-1>a");
}

TEST(TokenizerHostile, TokensThatMatchEverywhereAreFoundInTime) {  // TK-08
  Json file = letters_file(nullptr);
  for (int i = 1; i <= 128; ++i)
    file["added_tokens"].push_back({{"id", 1 + i},
                                    {"content", std::string(static_cast<std::size_t>(i), 'c')},
                                    {"lstrip", true},
                                    {"rstrip", true},
                                    {"normalized", false}});
  const Tokenizer tokenizer = tokenizer_of(file);
  EXPECT_EQ(tokenizer.encode(std::string(1'280'000, 'c'), text_only).ids, Ids(10'000, 129));
  std::string spaced;
  for (int i = 0; i < 1000; ++i) spaced += "c" + std::string(1000, ' ');
  EXPECT_EQ(tokenizer.encode(spaced, text_only).ids, Ids(1000, 2));
}

TEST(TokenizerHostile, ZeroBytesAreLetters) {  // TK-12
  Json file = letters_file(nullptr);
  file["model"]["vocab"] = Json{{"a", 0}, {std::string("\0", 1), 1}, {std::string("a\0b", 3), 2}};
  const Tokenizer tokenizer = tokenizer_of(file);
  EXPECT_EQ(tokenizer.encode(std::string("a\0\0", 3), text_only).ids, (Ids{0, 1, 1}));
  EXPECT_EQ(tokenizer.decode(Ids{2, 1}), std::string("a\0b\0", 4));
}

TEST(TokenizerHostile, MoreMergesThanMemoryAllowsAreRefused) {  // TK-14
  std::string text = R"({"model":{"type":"BPE","vocab":{"a":0,"aa":1},"merges":["a a")";
  text.reserve(80'000'000);
  for (int i = 0; i < 10'000'000; ++i) text += ",\"a a\"";
  const TemporaryFolder folder;
  put(folder / "tokenizer.json", text + "]}}");
  expect_broken([&] { Tokenizer::load(folder / "tokenizer.json"); },
                {"JSON at byte", "its value takes more than", "bytes of memory"});
}

}  // namespace
}  // namespace rapt::test
