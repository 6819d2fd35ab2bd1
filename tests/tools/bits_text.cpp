#include "support/cases.h"
#include "support/tokenizers.h"
#include "tools/bits.h"

namespace rapt::test {
namespace {

/// Words, numbers, spaces, scripts and broken UTF-8 in every order.
std::vector<std::string> texts() {
  const std::vector<std::string> pieces = {
      "the",   " cat",     "  ", "\n",   "\t",     "12345",      ".",      "...",
      "don't", "Éa\u0301", "ß",  "東京", "한국어", "\U0001F600", "\u200D", "<s>",
      "\xFF",  "\xE2\x82", "▁",  "Ġ",    "HELLO",  "x_y"};
  std::vector<std::string> all = {"", " ", "the cat sat on the mat, twice."};
  Random random(11);
  for (int i = 0; i < 300; ++i) {
    std::string text;
    for (Index n = random.below(12); n >= 0; --n)
      text += pieces[static_cast<std::size_t>(random.below(static_cast<Index>(pieces.size())))];
    all.push_back(text);
  }
  return all;
}

void add_encodings(Bits& bits, const Tokenizer& tokenizer) {
  for (const std::string& text : texts()) {
    const Ids ids = tokenizer.encode(text, text_only).ids;
    bits.add(ids);
    bits.add(tokenizer.decode(ids));
  }
}

void tokenizers(Bits& bits, const Context&) {
  add_encodings(bits, Tokenizer::bytes());
  const Tokenizer trained = Tokenizer::train(texts(), 400);
  add_encodings(bits, trained);
  const TemporaryFolder folder;
  trained.save(folder / "tokenizer.json");
  add_encodings(bits, Tokenizer::load(folder / "tokenizer.json"));
  add_encodings(
      bits, tokenizer_of({{"model",
                           {{"type", "WordPiece"},
                            {"unk_token", "[UNK]"},
                            {"continuing_subword_prefix", "##"},
                            {"max_input_chars_per_word", 100},
                            {"vocab", vocabulary_of({"[UNK]", "the", "c", "##a", "##t", "."})}}},
                          {"normalizer", {{"type", "BertNormalizer"}}},
                          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}}}));
}

}  // namespace

const std::vector<Section>& text_sections() {
  static const std::vector<Section> all = {{"tokenizers", tokenizers, false}};
  return all;
}

}  // namespace rapt::test
