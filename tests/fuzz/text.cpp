#include "fuzz/memory_file.h"
#include "fuzz/target.h"
#include "fuzz/tokenizer_files.h"

namespace rapt::fuzz {
namespace {

/// Those of which decode(encode(text)) is the text come first; one has tokens of single bytes.
constexpr std::size_t exact_ones = 2, with_byte_tokens = 4;

const std::vector<Tokenizer>& tokenizers() {
  static const std::vector<Tokenizer> all = [] {
    std::vector<Tokenizer> made = {Tokenizer::bytes()};
    for (const std::string& file : tokenizer_files())
      made.push_back(Tokenizer::load(in_memory(file)));
    return made;
  }();
  return all;
}

/// A byte that chooses the tokenizer, and a text.
std::vector<std::string> seeds() {
  std::vector<std::string> made;
  for (char kind = 0; kind < 6; ++kind) {
    made.push_back(kind +
                   std::string("ab A\u0301b [SEP] <l>\xFF\xE6 \u65e5 aaaab <|endoftext|>12"));
    made.push_back(kind + std::string("\u2581bab\u00EF \u1E9B\u0323 \U0001F600\r\n\t  x"));
  }
  return made;
}

std::vector<std::string> words() {
  return {"[SEP]",        "<l>",          "<unk>",        "<|endoftext|>",
          "\xE2\x96\x81", "\xC4\xA0",     "\xCC\x81",     "\xF0\x9F\x98\x80",
          "\xED\xA0\x80", "\xC0\x80",     "\xF4\x90\x80", "\xE6\x97\xA5",
          "  ",           "\xEF\xBF\xBD", "\xE1\xBA\x9B"};
}

/// Token after token gives what all of them together give.
void stream(const Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
  DecodeStream stream(tokenizer, {.skip_special_tokens = false});
  std::string text;
  for (const std::int32_t id : ids) text += stream.step(id);
  text += stream.finish();
  expect(text == tokenizer.decode(ids, {.skip_special_tokens = false}), "a stream of another text");
}

void use(std::size_t kind, std::string_view text, const Encoding& encoding) {
  const Tokenizer& tokenizer = tokenizers()[kind];
  expect(encoding.ids.size() == encoding.type_ids.size(), "ids without type ids");
  for (const std::int32_t id : encoding.ids)
    expect(id >= 0 && id < tokenizer.vocab_size(), "an id that is no token");
  stream(tokenizer, encoding.ids);
  if (kind < exact_ones)
    expect(tokenizer.decode(tokenizer.encode(text, {.add_special_tokens = false}).ids) == text,
           "another text");
  std::vector<std::int32_t> any;  // a stream decodes a few tokens for each: more are slow, not new
  for (const char byte : text.substr(0, 24))
    any.push_back(static_cast<unsigned char>(byte) %
                  static_cast<std::int32_t>(tokenizer.vocab_size()));
  if (kind != with_byte_tokens) stream(tokenizer, any);
  tokenizer.decode(any);
}

std::function<void()> open(std::string_view input) {
  const std::size_t kind =
      input.empty() ? 0 : static_cast<unsigned char>(input[0]) % tokenizers().size();
  const std::string text(input.substr(std::min<std::size_t>(1, input.size())));
  const Encoding encoding = tokenizers()[kind].encode(text, {.parse_special = true});
  return [=] { use(kind, text, encoding); };
}

}  // namespace

const Target text_target = {"text", seeds, words, open, 0, true};

}  // namespace rapt::fuzz
