#include "fuzz/memory_file.h"
#include "fuzz/target.h"
#include "fuzz/tokenizer_files.h"
#include "fuzz/tokenizer_use.h"

namespace rapt::fuzz {
namespace {

/// A tokenizer.json, a zero byte, which JSON does not have, and a text.
std::vector<std::string> seeds() {
  std::vector<std::string> made;
  for (const std::string& file : tokenizer_files())
    if (file.size() < 1024)  // a longer one would take the time of several
      made.push_back(file + std::string(1, '\0') + "ab A\u0301b [SEP] <l>\xFF\xE6 \u65e5 aaaab");
  return made;
}

std::vector<std::string> words() {
  return json_words({"type",          "merges",        "vocab",       "added_tokens",
                     "normalizer",    "pre_tokenizer", "decoder",     "post_processor",
                     "model",         "BPE",           "Unigram",     "WordPiece",
                     "WordLevel",     "ByteLevel",     "Metaspace",   "Sequence",
                     "NFKC",          "NFD",           "Lowercase",   "StripAccents",
                     "Replace",       "Prepend",       "Strip",       "Split",
                     "Digits",        "Punctuation",   "Whitespace",  "TemplateProcessing",
                     "ByteFallback",  "Fuse",          "Regex",       "String",
                     "behavior",      "Isolated",      "Removed",     "MergedWithPrevious",
                     "unk_token",     "byte_fallback", "a b",         "ab",
                     "<0xE6>",        "special",       "single_word", "lstrip",
                     "prepend_scheme"});
}

std::function<void()> open(std::string_view input) {
  const std::size_t zero = input.find('\0');
  const Tokenizer tokenizer = Tokenizer::load(in_memory(input.substr(0, zero)));
  const std::string text(zero == std::string_view::npos ? "ab" : input.substr(zero + 1));
  return [tokenizer, text] { use_tokenizer(tokenizer, text); };
}

}  // namespace

/// As much as an expression in it may take.
const Target tokenizer_target = {"tokenizer", seeds, words, open, 16 << 20};

}  // namespace rapt::fuzz
