#include <gtest/gtest.h>

#include "formats/config/short_decimal.h"
#include "support/tokenizers.h"
#include "text/models/byte_tokens.h"

namespace rapt::test {
using namespace detail;
namespace {

Json bert_file() {
  const Json frame{{"type", "TemplateProcessing"},
                   {"single",
                    {{{"SpecialToken", {{"id", "[CLS]"}, {"type_id", 0}}}},
                     {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
                     {{"SpecialToken", {{"id", "[SEP]"}, {"type_id", 0}}}}}},
                   {"pair",
                    {{{"SpecialToken", {{"id", "[CLS]"}, {"type_id", 0}}}},
                     {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
                     {{"SpecialToken", {{"id", "[SEP]"}, {"type_id", 0}}}},
                     {{"Sequence", {{"id", "B"}, {"type_id", 1}}}},
                     {{"SpecialToken", {{"id", "[SEP]"}, {"type_id", 1}}}}}},
                   {"special_tokens",
                    {{"[CLS]", {{"id", "[CLS]"}, {"ids", {2}}, {"tokens", {"[CLS]"}}}},
                     {"[SEP]", {{"id", "[SEP]"}, {"ids", {3}}, {"tokens", {"[SEP]"}}}}}}};
  return {
      {"added_tokens", Json::array({added_token(0, "[PAD]", true), added_token(1, "[UNK]", true),
                                    added_token(2, "[CLS]", true), added_token(3, "[SEP]", true)})},
      {"normalizer",
       {{"type", "BertNormalizer"},
        {"clean_text", true},
        {"handle_chinese_chars", true},
        {"strip_accents", nullptr},
        {"lowercase", true}}},
      {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
      {"post_processor", frame},
      {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
      {"model",
       {{"type", "WordPiece"},
        {"unk_token", "[UNK]"},
        {"continuing_subword_prefix", "##"},
        {"max_input_chars_per_word", 10},
        {"vocab", vocabulary_of({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing", "##in", "##g",
                                 "cafe", "!", "\u65e5", "\u672c", "##a"})}}}};
}

TEST(TokenizerKinds, WordPiecesAreTheLongest) {
  const Tokenizer tokenizer = tokenizer_of(bert_file());
  EXPECT_EQ(tokenizer.encode("Playing!", text_only).ids, (Ids{4, 5, 9}));
  EXPECT_EQ(tokenizer.encode("playinga", text_only).ids, (Ids{4, 5, 12}));
  EXPECT_EQ(tokenizer.encode("CAF\u00C9 cafe\u0301", text_only).ids, (Ids{8, 8}));  // accents go
  EXPECT_EQ(tokenizer.encode("\u65e5\u672c", text_only).ids,
            (Ids{10, 11}));                                     // ideographs stand alone
  EXPECT_EQ(tokenizer.encode("plays", text_only).ids, Ids{1});  // the whole word is unknown
  EXPECT_EQ(tokenizer.encode("playaaaaaa", text_only).ids, (Ids{4, 12, 12, 12, 12, 12, 12}));
  EXPECT_EQ(tokenizer.encode("playaaaaaaa", text_only).ids, Ids{1});  // longer than 10 characters
  EXPECT_EQ(tokenizer
                .encode("pl\x01"
                        "ay\u200b\tplay",
                        text_only)
                .ids,
            (Ids{4, 4}));                                           // controls go, tabs are spaces
  EXPECT_EQ(tokenizer.encode("play \xFF", text_only).ids, Ids{4});  // U+FFFD is removed
  EXPECT_EQ(tokenizer.decode(Ids{2, 4, 5, 9, 3}), "playing!");
  EXPECT_EQ(tokenizer.decode(Ids{2, 4, 3}, {.skip_special_tokens = false}), "[CLS] play [SEP]");
}

TEST(TokenizerKinds, PostProcessorsSetTypeIds) {
  const Tokenizer tokenizer = tokenizer_of(bert_file());
  const Encoding one = tokenizer.encode("play", EncodeOptions{});
  EXPECT_EQ(one.ids, (Ids{2, 4, 3}));
  EXPECT_EQ(one.type_ids, (Ids{0, 0, 0}));
  const Encoding two = tokenizer.encode_pair("play", "cafe!");
  EXPECT_EQ(two.ids, (Ids{2, 4, 3, 8, 9, 3}));
  EXPECT_EQ(two.type_ids, (Ids{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(tokenizer.encode_pair("play", "!", {.add_special_tokens = false}).type_ids,
            (Ids{0, 1}));
  // TK-16: spelled out, a special token is text unless asked for.
  EXPECT_EQ(tokenizer.encode("[SEP]", text_only).ids.size(), 3u);
  EXPECT_EQ(tokenizer.encode("[SEP]", {.add_special_tokens = false, .parse_special = true}).ids,
            Ids{3});
}

TEST(TokenizerKinds, SpecialTokensHaveNames) {
  const Tokenizer tokenizer = tokenizer_of(bert_file());
  EXPECT_EQ(tokenizer.special_tokens().unk, 1);
  EXPECT_EQ(tokenizer.special_tokens().cls, 2);
  EXPECT_EQ(tokenizer.special_tokens().sep, 3);
  EXPECT_EQ(tokenizer.pad(), 0);
  EXPECT_EQ(tokenizer.special_tokens().mask, std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(5), "##ing");
  EXPECT_EQ(tokenizer.token_to_id("##ing"), 5);
}

/// Llama 2: every byte, some letters, and merges.
Json llama_file() {
  Json vocabulary = vocabulary_of({"<unk>", "<s>", "</s>"});
  for (int byte = 0; byte < 256; ++byte)
    vocabulary[byte_token(static_cast<std::uint8_t>(byte))] = vocabulary.size();
  for (const char* token : {"\u2581", "a", "b", "ab", "\u2581ab"})
    vocabulary[token] = vocabulary.size();
  return {{"added_tokens", Json::array({added_token(0, "<unk>", true), added_token(1, "<s>", true),
                                        added_token(2, "</s>", true)})},
          {"normalizer",
           {{"type", "Sequence"},
            {"normalizers",
             {{{"type", "Prepend"}, {"prepend", "\u2581"}},
              {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}}}}},
          {"pre_tokenizer", nullptr},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders",
             {{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
              {{"type", "ByteFallback"}},
              {{"type", "Fuse"}},
              {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"vocab", vocabulary},
            {"merges", {"a b", "\u2581 ab"}}}}};
}

TEST(TokenizerKinds, CharactersWithoutTokenAreBytes) {
  const Tokenizer tokenizer = tokenizer_of(llama_file());
  EXPECT_EQ(tokenizer.encode("ab ab", text_only).ids, (Ids{263, 263}));
  EXPECT_EQ(tokenizer.encode("b\u00e9", text_only).ids, (Ids{259, 261, 3 + 0xC3, 3 + 0xA9}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("ab \u65e5 b", text_only).ids), "ab \u65e5 b");
  EXPECT_EQ(tokenizer.decode(Ids{3 + 0xC3}), "\uFFFD");
  EXPECT_EQ(tokenizer.encode("", text_only).ids, Ids{});
  EXPECT_EQ(tokenizer.encode("\xFF", text_only).ids, tokenizer.encode("\uFFFD", text_only).ids);
}

TEST(TokenizerKinds, MetaspaceMayComeFirstOnly) {
  Json file = llama_file();
  file["normalizer"] = nullptr;
  const auto with = [&](const char* scheme) {
    file["pre_tokenizer"] = {{"type", "Metaspace"},
                             {"replacement", "\u2581"},
                             {"prepend_scheme", scheme},
                             {"split", false}};
    const Tokenizer tokenizer = tokenizer_of(file);
    return tokenizer.encode("ab</s>ab", {.add_special_tokens = false, .parse_special = true}).ids;
  };
  EXPECT_EQ(with("always"), (Ids{263, 2, 263}));
  EXPECT_EQ(with("first"), (Ids{263, 2, 262}));
  EXPECT_EQ(with("never"), (Ids{262, 2, 262}));
  file["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "_"}, {"add_prefix_space", false}};
  EXPECT_EQ(tokenizer_of(file).encode("ab", text_only).ids, Ids{262});  // files of old
}

Json unigram_file() {
  return {{"added_tokens", Json::array({added_token(0, "<unk>", true)})},
          {"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "\u2581"}}},
          {"decoder", {{"type", "Metaspace"}, {"replacement", "\u2581"}}},
          {"model",
           {{"type", "Unigram"},
            {"unk_id", 0},
            {"vocab", Json::array({Json::array({"<unk>", 0}), Json::array({"\u2581", -3.0}),
                                   Json::array({"a", -2.5}), Json::array({"b", -2.5}),
                                   Json::array({"ab", -5.5}), Json::array({"\u2581a", -4.0}),
                                   Json::array({"bab", -4.5})})}}}};
}

TEST(TokenizerKinds, UnigramFindsTheBestSum) {
  const Tokenizer tokenizer = tokenizer_of(unigram_file());
  EXPECT_EQ(tokenizer.encode("abab", text_only).ids, (Ids{5, 6}));
  EXPECT_EQ(tokenizer.encode("ab", text_only).ids, (Ids{5, 3}));
  EXPECT_EQ(tokenizer.encode("xyb", text_only).ids, (Ids{1, 0, 3}));  // unknown neighbours are one
  EXPECT_EQ(tokenizer.decode(Ids{5, 6, 5, 3}), "abab ab");
  Json file = unigram_file();
  file["model"]["vocab"][3][1] = "x";  // TK-13
  expect_broken([&] { tokenizer_of(file); }, {"model.vocab[3]", "score"});
  file = unigram_file();
  file["model"]["unk_id"] = 7;
  expect_broken([&] { tokenizer_of(file); }, {"model.unk_id is 7", "0 to 6"});
  file["model"]["unk_id"] = nullptr;
  expect_broken([&] { tokenizer_of(file).encode("x", text_only).ids; },
                {"no token stands for unknown"});
}

TEST(TokenizerKinds, ScoresAreThoseOfTheLibrary) {
  // As written in a file, and as the tokenizers library has them after reading it.
  EXPECT_EQ(divided_decimal(-7.0851844740150804), -7.08518447401508);
  EXPECT_EQ(divided_decimal(-7.3022812145391836), -7.302281214539184);
  EXPECT_EQ(divided_decimal(-7.3880310811775125), -7.388031081177512);
  for (const double plain : {0.0, -1.0, 2.5, -13.25, 1e300, -4e-7})
    EXPECT_EQ(divided_decimal(plain), plain);
}

TEST(TokenizerKinds, TablesReplaceCharacters) {
  Json file = unigram_file();
  const std::string table = table_of_one();
  file["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", table}};
  EXPECT_EQ(tokenizer_of(file).encode("AbAb", text_only).ids, (Ids{5, 6}));
  EXPECT_EQ(tokenizer_of(file).encode("bA\u0301b", text_only).ids,
            (Ids{1, 6}));                                    // the mark goes with its letter
  for (std::size_t cut = 4; cut < table.size(); cut += 4) {  // TK-11
    file["normalizer"]["precompiled_charsmap"] = table.substr(0, cut);
    try {
      tokenizer_of(file).encode("AbAb\u0301 \xFF", text_only).ids;
    } catch (const std::runtime_error&) {
    }
  }
  file["normalizer"]["precompiled_charsmap"] = "AA*A";
  expect_broken([&] { tokenizer_of(file); }, {"not base64 at letter 2"});
  file["normalizer"]["precompiled_charsmap"] = "/////w==";
  expect_broken([&] { tokenizer_of(file); }, {"4 bytes", "too few"});
}

TEST(TokenizerKinds, ExpressionsAreBounded) {  // TK-09
  Json file = unigram_file();
  const auto cut_by = [&](const std::string& expression) {
    file["pre_tokenizer"] = {{"type", "Split"},
                             {"pattern", {{"Regex", expression}}},
                             {"behavior", "Isolated"},
                             {"invert", false}};
    return tokenizer_of(file);
  };
  EXPECT_EQ(cut_by("b").encode("abab", text_only).ids, (Ids{2, 3, 2, 3}));
  const Tokenizer slow = cut_by("(?:a+)+[xy]");
  expect_broken([&] { slow.encode(std::string(40, 'a'), text_only).ids; },
                {"cannot be searched", "limit"});
  expect_broken([&] { cut_by(std::string(10'001, 'a')); }, {"10001 bytes", "limit"});
  expect_broken([&] { cut_by("(a"); }, {"which is not one"});
  for (const char* odd : {"\\h", "[a&&b]", "[[:alpha:]]", "(?<n>a)", "(?R)", "\\1", "[\\S]"})
    expect_broken([&] { cut_by(odd); }, {"is not supported"});
}

TEST(TokenizerKinds, AddedTokensTakeSpacesAndMindWords) {
  Json file = unigram_file();
  const auto add = [&](int id, const char* content, const char* flag) {
    Json token = added_token(id, content, false);
    if (*flag != 0) token[flag] = true;
    file["added_tokens"].push_back(token);
  };
  add(7, "<l>", "lstrip"), add(8, "<r>", "rstrip"), add(9, "one", "single_word");
  const Tokenizer tokenizer = tokenizer_of(file);
  EXPECT_EQ(tokenizer.encode("ab  <l>a", text_only).ids, (Ids{5, 3, 7, 5}));
  EXPECT_EQ(tokenizer.encode("<r>  a", text_only).ids, (Ids{8, 5}));
  EXPECT_EQ(tokenizer.encode("one.", text_only).ids, (Ids{9, 1, 0}));
  EXPECT_EQ(tokenizer.encode("ones", text_only).ids, (Ids{1, 0}));
  std::string spaces(100'000, ' ');  // a run of spaces is walked through once
  EXPECT_EQ(tokenizer.encode("<r>" + spaces + "<l>", text_only).ids.size(), 2u);
}

TEST(TokenizerKinds, WordsCanBeTokens) {
  Json file = unigram_file();
  file["pre_tokenizer"] = {{"type", "Whitespace"}};
  file["decoder"] = nullptr;
  file["model"] = {{"type", "WordLevel"},
                   {"unk_token", "<unk>"},
                   {"vocab", vocabulary_of({"<unk>", "hello", "!!", "x_1"})}};
  const Tokenizer tokenizer = tokenizer_of(file);
  EXPECT_EQ(tokenizer.encode("hello!! x_1 you", text_only).ids, (Ids{1, 2, 3, 0}));
  EXPECT_EQ(tokenizer.decode(Ids{1, 2}), "hello !!");
  file["model"].erase("unk_token");
  expect_broken([&] { tokenizer_of(file); }, {"unk_token"});
}

TEST(TokenizerKinds, StreamsNeverHandOutHalfACharacter) {
  const std::string text = "ab \u65e5 b\U0001F600";
  for (const Tokenizer& tokenizer : {tokenizer_of(llama_file()), Tokenizer::bytes()}) {
    DecodeStream stream(tokenizer);
    std::string whole;
    for (const std::int32_t id : tokenizer.encode(text, text_only).ids) {
      const std::string part = stream.step(id);
      EXPECT_EQ(part.find("\uFFFD"), std::string::npos);
      EXPECT_TRUE(part.empty() || (static_cast<unsigned char>(part[0]) & 0xC0) != 0x80);
      whole += part;
    }
    EXPECT_EQ(whole + stream.finish(), text);
  }
  DecodeStream half(Tokenizer::bytes());
  EXPECT_EQ(half.step(0xE6), "");
  EXPECT_EQ(half.finish(), "\xE6");
}

/// A special token gives nothing, and the word behind it is not the first one.
TEST(TokenizerKinds, StreamsKeepSpacesBehindSpecialTokens) {
  const Tokenizer tokenizer =
      tokenizer_of({{"added_tokens", Json::array({added_token(1, "[SEP]", true)})},
                    {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
                    {"decoder", {{"type", "WordPiece"}}},
                    {"model",
                     {{"type", "WordPiece"},
                      {"unk_token", "[UNK]"},
                      {"vocab", vocabulary_of({"[UNK]", "[SEP]", "a", "##b"})}}}});
  DecodeStream stream(tokenizer);
  const Ids ids{1, 2, 3, 1, 1, 2, 1, 2, 3};
  std::string text;
  for (const std::int32_t id : ids) text += stream.step(id);
  EXPECT_EQ(text + stream.finish(), "ab a ab");
  EXPECT_EQ(tokenizer.decode(ids), "ab a ab");
}

/// The first space is left out, the second is not, be there a special token before them or not.
TEST(TokenizerKinds, StreamsKnowTheFirstTokenThoughItGivesNoText) {
  const Tokenizer tokenizer =
      tokenizer_of({{"added_tokens", Json::array({added_token(0, "<s>", true)})},
                    {"decoder", {{"type", "Metaspace"}, {"replacement", "\u2581"}}},
                    {"model",
                     {{"type", "Unigram"},
                      {"unk_id", 0},
                      {"vocab", Json::array({Json::array({"<s>", 0}), Json::array({"\u2581", -1.0}),
                                             Json::array({"\u2581a", -2.0})})}}}});
  for (const Ids& ids : {Ids{1, 2}, Ids{0, 1, 2}, Ids{0, 1, 0, 0, 1, 2, 0}}) {
    DecodeStream stream(tokenizer);
    std::string text;
    for (const std::int32_t id : ids) text += stream.step(id);
    EXPECT_EQ(text + stream.finish(), tokenizer.decode(ids));
  }
  EXPECT_EQ(tokenizer.decode(Ids{1, 2}), " a");
}

TEST(TokenizerKinds, WhatIsWrittenIsRead) {
  const TemporaryFolder folder;
  for (const Json& file : {bert_file(), llama_file(), unigram_file()}) {
    const Tokenizer tokenizer = tokenizer_of(file);
    tokenizer.save(folder / "tokenizer.json");
    const Tokenizer back = Tokenizer::load(folder / "tokenizer.json");
    for (const char* text : {"playing ab \u65e5", "b a ab [SEP] </s>", ""}) {
      EXPECT_EQ(back.encode(text, EncodeOptions{}).ids,
                tokenizer.encode(text, EncodeOptions{}).ids);
      EXPECT_EQ(back.decode(back.encode(text, text_only).ids),
                tokenizer.decode(tokenizer.encode(text, text_only).ids));
    }
  }
}

}  // namespace
}  // namespace rapt::test
