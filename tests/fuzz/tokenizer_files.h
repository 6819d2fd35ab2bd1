#pragma once

#include <string>
#include <vector>

#include "support/tokenizers.h"

namespace rapt::fuzz {
using namespace detail;

// A small tokenizer.json of each kind.

using test::added_token;
using test::vocabulary_of;

inline Json bytes_file() {
  const test::TemporaryFolder folder;
  const std::vector<std::string> texts{"abab abab ab <|endoftext|> 12 12 12"};
  Tokenizer::train(texts, 260).save(folder / "trained");
  return Json::parse(test::get(folder / "trained"));
}

inline Json unigram_file() {
  return {
      {"added_tokens", Json::array({added_token(0, "<unk>", true), added_token(7, "<l>", false)})},
      {"normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", test::table_of_one()}}},
      {"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "\u2581"}}},
      {"decoder", {{"type", "Metaspace"}, {"replacement", "\u2581"}}},
      {"model",
       {{"type", "Unigram"},
        {"unk_id", 0},
        {"vocab",
         Json::array({Json::array({"<unk>", 0}), Json::array({"\u2581", -3.0}),
                      Json::array({"a", -2.0}), Json::array({"b", -2.0}), Json::array({"ab", -5.0}),
                      Json::array({"bab", -4.0}), Json::array({"[", -4.0})})}}}};
}

inline Json word_piece_file() {
  return {{"added_tokens", Json::array({added_token(1, "[SEP]", true)})},
          {"normalizer", {{"type", "BertNormalizer"}, {"lowercase", true}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"post_processor",
           {{"type", "BertProcessing"}, {"sep", {"[SEP]", 1}}, {"cls", {"[SEP]", 1}}}},
          {"decoder", {{"type", "WordPiece"}}},
          {"model",
           {{"type", "WordPiece"},
            {"unk_token", "[UNK]"},
            {"vocab", vocabulary_of({"[UNK]", "[SEP]", "a", "##b", "b", "ab", "##ab"})}}}};
}

inline Json bpe_file() {
  return {{"added_tokens", Json::array({added_token(0, "<unk>", true)})},
          {"normalizer",
           {{"type", "Sequence"},
            {"normalizers",
             {{{"type", "NFKC"}},
              {{"type", "Replace"}, {"pattern", {{"Regex", " +"}}}, {"content", "_"}}}}}},
          {"pre_tokenizer",
           {{"type", "Split"},
            {"pattern", {{"Regex", "_?\\p{L}+|[^\\s\\p{L}]"}}},
            {"behavior", "Isolated"},
            {"invert", false}}},
          {"decoder",
           {{"type", "Sequence"}, {"decoders", {{{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"byte_fallback", true},
            {"fuse_unk", true},
            {"vocab", vocabulary_of({"<unk>", "a", "b", "ab", "_", "_ab", "<0xE6>", "<0x97>"})},
            {"merges", {"a b", "_ ab"}}}}};
}

/// Byte-level as bytes_file(), but short enough to be changed as a whole: most bytes have no token.
inline Json letters_file() {
  return {
      {"added_tokens", Json::array({added_token(4, "<|endoftext|>", true)})},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"post_processor", {{"type", "ByteLevel"}, {"trim_offsets", false}}},
      {"model",
       {{"type", "BPE"},
        {"vocab", vocabulary_of({"a", "b", "ab", "\u0120"})},
        {"merges", Json::array({Json::array({"a", "b"})})}}}};
}

/// A token without letters, which merges and which unknown letters become; digits are cut among the
/// letters that stand for bytes.
inline Json empty_token_file() {
  return {
      {"added_tokens", Json::array({added_token(5, "<|endoftext|>", true)})},
      {"pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", {{{"type", "ByteLevel"}}, {{"type", "Digits"}}}}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model",
       {{"type", "BPE"},
        {"unk_token", ""},
        {"vocab", vocabulary_of({"", "a", "b", "ab", "\u0120"})},
        {"merges", Json::array({Json::array({"", "a"}), Json::array({"a", "b"}),
                                Json::array({"b", ""}), Json::array({"", ""})})}}}};
}

inline std::vector<std::string> tokenizer_files() {
  return {bytes_file().dump(), unigram_file().dump(), word_piece_file().dump(),
          bpe_file().dump(),   letters_file().dump(), empty_token_file().dump()};
}

}  // namespace rapt::fuzz
