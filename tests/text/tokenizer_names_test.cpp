#include <gtest/gtest.h>

#include "support/tokenizers.h"
#include "text/stages/byte_letters.h"
#include "text/tokenizer/tokenizer_parts.h"

// tokenizer.ggml.pre: how byte-level files cut texts. Merges that would join what a rule keeps
// apart tell the rules from each other; tests/oracles/text/test_gguf_pre.py compares longer texts
// with the library.
namespace rapt::test {
using namespace detail;
namespace {

/// Bytes, then every pair in `merges` as a token of its own, from 256 on.
TokenizerParts parts_of(const std::string& pre, const std::vector<std::string>& merges) {
  TokenizerParts parts{.model = "gpt2", .pre = pre};
  for (int byte = 0; byte < 256; ++byte)
    parts.tokens.push_back(letters_of(std::string(1, static_cast<char>(byte))));
  for (const std::string& pair : merges) {
    const std::size_t half = pair.find('|');
    const std::string left = letters_of(pair.substr(0, half));
    const std::string right = letters_of(pair.substr(half + 1));
    parts.tokens.push_back(left + right);
    parts.merges.push_back(left + " " + right);
  }
  return parts;
}

Ids encoded(const std::string& pre, const std::vector<std::string>& merges,
            const std::string& text) {
  return tokenizer_from_parts(parts_of(pre, merges), "test").encode(text, text_only).ids;
}

TEST(TokenizerNames, DigitsStandAloneOrTogether) {
  for (const char* pre :
       {"starcoder", "refact", "smollm", "command-r", "deepseek-llm", "deepseek-coder", "qwen2"})
    EXPECT_EQ(encoded(pre, {"1|2"}, "12"), (Ids{'1', '2'})) << pre;
  for (const char* pre : {"mpt", "gpt-2", "llama-bpe", "deepseek-v3", "gpt-4o", "bloom", "olmo"})
    EXPECT_EQ(encoded(pre, {"1|2"}, "12"), Ids{256}) << pre;
}

TEST(TokenizerNames, FalconCutsNumbersInThreesFromTheLeft) {
  EXPECT_EQ(encoded("falcon", {"3|4", "1|2"}, "1234"), (Ids{257, '3', '4'}));
  EXPECT_EQ(encoded("gpt-2", {"3|4", "1|2"}, "1234"), (Ids{257, 256}));
}

/// Its digits are looked for among the letters that stand for bytes: 0xBC is spelled as one
/// quarter.
TEST(TokenizerNames, FalconTakesSomeBytesForNumbers) {
  EXPECT_EQ(encoded("falcon", {"\xC3|\xBC"}, "\u00fc"), (Ids{0xC3, 0xBC}));
  EXPECT_EQ(encoded("falcon", {"\xC3|\xA4"}, "\u00e4"), Ids{256});
  EXPECT_EQ(encoded("mpt", {"\xC3|\xBC"}, "\u00fc"), Ids{256});
}

TEST(TokenizerNames, DeepSeekCutsAtEveryLineEndAndKeepsScriptsApart) {
  for (const char* pre : {"deepseek-llm", "deepseek-coder"}) {
    EXPECT_EQ(encoded(pre, {"\n|\n"}, "\n\n"), (Ids{'\n', '\n'})) << pre;
    EXPECT_EQ(encoded(pre, {" |a"}, " a"), Ids{256}) << pre;
    EXPECT_EQ(encoded(pre, {"a|!"}, "a!"), (Ids{'a', '!'})) << pre;
  }
  // A dollar is no punctuation by its category, but one of the characters that the other lists.
  EXPECT_EQ(encoded("deepseek-coder", {"!|$"}, "!$"), (Ids{'!', '$'}));
  EXPECT_EQ(encoded("deepseek-llm", {"!|$"}, "!$"), Ids{256});
}

TEST(TokenizerNames, TextsAreComposedWhereTheOriginalsAre) {
  for (const char* pre : {"mpt", "qwen2", "command-r", "olmo"})
    EXPECT_EQ(encoded(pre, {}, "u\u0308"), (Ids{0xC3, 0xBC})) << pre;
  for (const char* pre : {"falcon", "starcoder", "refact", "deepseek-llm", "gpt-2"})
    EXPECT_EQ(encoded(pre, {}, "u\u0308"), (Ids{'u', 0xCC, 0x88})) << pre;
}

TEST(TokenizerNames, Llama3BeginsItsTextsUnlessTheFileSaysOtherwise) {
  TokenizerParts parts = parts_of("llama-bpe", {});
  parts.tokens.emplace_back("<|begin_of_text|>");
  parts.special.bos = 256;
  const auto ids = [&] { return tokenizer_from_parts(parts, "test").encode("a", {}).ids; };
  EXPECT_EQ(ids(), (Ids{256, 'a'}));
  parts.add_bos = false;
  EXPECT_EQ(ids(), Ids{'a'});
  parts.add_bos = {}, parts.pre = "gpt-2";
  EXPECT_EQ(ids(), Ids{'a'});
  parts.pre = "llama-bpe", parts.special.bos = {};  // it names none
  EXPECT_EQ(ids(), Ids{'a'});
}

TEST(TokenizerNames, OthersAreRefusedByName) {
  for (const char* pre : {"kimi-k2", "superbpe", "afmoe", "roberta-bpe", "no-such"})
    expect_broken([&] { tokenizer_from_parts(parts_of(pre, {}), "file"); },
                  {"file", std::string("\"") + pre + "\"", "tokenizer.ggml.pre", "expected one of",
                   "deepseek-coder", "falcon"});
}

}  // namespace
}  // namespace rapt::test
