#include "text/tokenizer/tokenizer_parts.h"

#include <gtest/gtest.h>

#include "support/tokenizers.h"
#include "text/models/byte_tokens.h"
#include "text/stages/byte_letters.h"

namespace rapt::test {
using namespace detail;
namespace {

TokenizerParts llama_parts() {
  TokenizerParts parts{.model = "llama", .tokens = {"<unk>", "<s>", "</s>"}, .types = {2, 3, 3}};
  for (int byte = 0; byte < 256; ++byte) {
    parts.tokens.push_back(byte_token(static_cast<std::uint8_t>(byte)));
    parts.types.push_back(6);
  }
  for (const char* token : {"ab", "\u2581ab", "ba", "\u2581", "a", "b"}) {
    parts.tokens.emplace_back(token);
    parts.types.push_back(1);
  }
  for (std::size_t id = 0; id < parts.tokens.size(); ++id)
    parts.scores.push_back(id < 259 ? 0 : 259.0 - static_cast<double>(id));
  parts.special = {.unk = 0, .bos = 1, .eos = 2};
  return parts;
}

TEST(TokenizerParts, LlamaMergesByScore) {
  const Tokenizer tokenizer = tokenizer_from_parts(llama_parts(), "test");
  EXPECT_EQ(tokenizer.encode("ab", text_only).ids, Ids{260});
  EXPECT_EQ(tokenizer.encode("bab", text_only).ids,
            (Ids{262, 264, 259}));  // "ab" scores higher than "ba"
  EXPECT_EQ(tokenizer.encode("ab", EncodeOptions{}).ids, (Ids{1, 260}));
  EXPECT_EQ(tokenizer.encode("\n", text_only).ids, (Ids{262, 3 + '\n'}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("ab \u65e5", text_only).ids), "ab \u65e5");
  EXPECT_EQ(tokenizer.eos(), 2);
  TokenizerParts plain = llama_parts();
  plain.add_space_prefix = false;
  plain.add_bos = false;
  plain.add_eos = true;
  EXPECT_EQ(tokenizer_from_parts(plain, "test").encode("ab", EncodeOptions{}).ids, (Ids{259, 2}));
}

TokenizerParts gpt2_parts() {
  TokenizerParts parts{.model = "gpt2", .pre = "smollm"};
  for (int byte = 0; byte < 256; ++byte)
    parts.tokens.push_back(letters_of(std::string(1, static_cast<char>(byte))));
  for (const char* token : {"ab", "12", "\u0120ab", "<|im_end|>"}) parts.tokens.emplace_back(token);
  parts.types.assign(parts.tokens.size(), 1);
  parts.types.back() = 3;
  parts.merges = {"a b", "1 2", "\u0120 ab"};
  parts.special.eos = 259;
  return parts;
}

TEST(TokenizerParts, ByteLevelCutsByName) {
  EXPECT_EQ(tokenizer_from_parts(gpt2_parts(), "test").encode("ab ab12", text_only).ids,
            (Ids{256, 258, '1', '2'}));  // digits stand alone
  TokenizerParts parts = gpt2_parts();
  for (const char* pre : {"gpt-2", "llama-bpe", "default"}) {
    parts.pre = pre;
    EXPECT_EQ(tokenizer_from_parts(parts, "test").encode("ab ab12", text_only).ids,
              (Ids{256, 258, 257}))
        << pre;
  }
  const Tokenizer tokenizer = tokenizer_from_parts(parts, "test");
  EXPECT_EQ(tokenizer.encode("<|im_end|>", EncodeOptions{.parse_special = true}).ids, Ids{259});
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("ab \xFF", text_only).ids), "ab \xFF");
}

TEST(TokenizerParts, BertWordsBeginWithASpace) {
  const TokenizerParts parts{.model = "bert",
                             .tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2581play", "ing"},
                             .special = {.unk = 1, .pad = 0}};
  const Tokenizer tokenizer = tokenizer_from_parts(parts, "test");
  EXPECT_EQ(tokenizer.encode("Playing", EncodeOptions{}).ids, (Ids{2, 4, 5, 3}));
  EXPECT_EQ(tokenizer.encode_pair("play", "play").type_ids, (Ids{0, 0, 0, 1, 1}));
  EXPECT_EQ(tokenizer.encode("ing", text_only).ids, Ids{1});
}

TEST(TokenizerParts, BertMayKeepCapitalsAndAccents) {
  TokenizerParts parts{.model = "bert",
                       .tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2581Haus", "\u2581haus",
                                  "\u2581\u00fcber", "\u2581uber"},
                       .special = {.unk = 1, .pad = 0}};
  const auto ids = [&] {
    return tokenizer_from_parts(parts, "test").encode("Haus \u00fcber", text_only).ids;
  };
  EXPECT_EQ(ids(), (Ids{5, 7}));
  parts.lowercase = false;  // and accents stay with capitals
  EXPECT_EQ(ids(), (Ids{4, 6}));
  parts.strip_accents = true;
  EXPECT_EQ(ids(), (Ids{4, 7}));
  parts.lowercase = true, parts.strip_accents = false;
  EXPECT_EQ(ids(), (Ids{5, 6}));
}

TEST(TokenizerParts, ListsThatCannotBe) {
  const auto refused = [](const auto& change, const std::vector<std::string>& words) {
    TokenizerParts parts = gpt2_parts();
    change(parts);
    expect_broken([&] { tokenizer_from_parts(parts, "file"); }, words);
  };
  using Parts = TokenizerParts;
  for (const char* odd : {"<0x-1>", "<0xZZ>", "<0x100>", "<0x1>", "0x0A"})  // TK-06
    refused([&](Parts& p) { p.tokens[7] = odd, p.types[7] = 6; },
            {"token 7 is \"" + std::string(odd) + "\"", "a byte such as <0x0A>"});
  refused([](Parts& p) { p.model = "rwkv"; }, {"file", "\"rwkv\"", "expected llama"});
  refused([](Parts& p) { p.pre = "no-such"; }, {"file", "\"no-such\"", "expected one of"});
  refused([](Parts& p) { p.tokens.clear(); }, {"0 tokens"});
  refused([](Parts& p) { p.tokens[3] = p.tokens[4]; }, {"has two ids", "4"});
  refused([](Parts& p) { p.tokens[3] = "\xFF"; }, {"token 3", "UTF-8"});
  refused([](Parts& p) { p.types.pop_back(); }, {"259 token types for 260"});
  refused([](Parts& p) { p.special.bos = 260; }, {"special token 260", "0 to 259"});
  refused([](Parts& p) { p.special.bos = -1; }, {"special token -1"});
  refused([](Parts& p) { p.merges.emplace_back("q"); }, {"merge 3", "two tokens"});
  refused([](Parts& p) { p.merges.emplace_back("q q"); }, {"merge 3", "\"qq\""});
  refused([](Parts& p) { p.add_bos = true; }, {"does not name"});
  refused([](Parts& p) { p.model = "llama", p.special.bos = 259; }, {"0 scores for 260"});
}

}  // namespace
}  // namespace rapt::test
