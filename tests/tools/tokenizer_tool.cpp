// For tests/oracles/text/test_tokenizer.py.
//   tokenizer_tool train VOCAB_SIZE OUT FILE...  trains on the files, writes a tokenizer.json
//   tokenizer_tool bytes OUT                     writes the byte tokenizer
//   tokenizer_tool copy TOKENIZER OUT            loads and saves
//   tokenizer_tool encode TOKENIZER FILE         prints the ids of the file's text
//   tokenizer_tool batch TOKENIZER FILE OUT      encodes the texts of FILE, writes what is below
//   tokenizer_tool time TOKENIZER FILE           prints the CPU seconds to encode the file
// A text in FILE is its length in bytes (u32) and its bytes. For each text, or for each pair of
// neighbours if the file's name ends in "pairs", OUT has: the number of ids (u32), the ids and the
// type ids (i32), the length (u32) and the bytes of the decoded text.
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>

#include "base/io/files.h"
#include "rapt/models/tokenizer.h"

namespace {

constexpr rapt::Index limit = rapt::Index{1} << 32;

std::vector<std::string> texts_of(const std::string& path) {
  const std::string all = rapt::detail::read_file(path, limit);
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < all.size();) {
    std::uint32_t length = 0;
    std::memcpy(&length, all.data() + at, 4);
    texts.push_back(all.substr(at + 4, length));
    at += 4 + length;
  }
  return texts;
}

void put(std::ostream& out, const rapt::Tokenizer& tokenizer, const rapt::Encoding& encoding) {
  const std::string text = tokenizer.decode(encoding.ids);
  const auto count = static_cast<std::uint32_t>(encoding.ids.size());
  const auto length = static_cast<std::uint32_t>(text.size());
  const auto raw = [&](const void* data, std::size_t bytes) {
    out.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  };
  raw(&count, 4), raw(encoding.ids.data(), 4 * encoding.ids.size());
  raw(encoding.type_ids.data(), 4 * encoding.type_ids.size());
  raw(&length, 4), raw(text.data(), text.size());
}

void batch(const rapt::Tokenizer& tokenizer, const std::string& in, const std::string& path) {
  const std::vector<std::string> texts = texts_of(in);
  const rapt::EncodeOptions how{.parse_special = true};
  std::ofstream out(path, std::ios::binary);
  if (!in.ends_with("pairs"))
    for (const std::string& text : texts) put(out, tokenizer, tokenizer.encode(text, how));
  else
    for (std::size_t i = 0; i + 1 < texts.size(); i += 2)
      put(out, tokenizer, tokenizer.encode_pair(texts[i], texts[i + 1], how));
}

void time(const rapt::Tokenizer& tokenizer, const std::string& text) {
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    const std::clock_t start = std::clock();  // of this process, whatever else the machine does
    if (tokenizer.encode(text, {.add_special_tokens = false}).ids.empty())
      throw std::runtime_error("no tokens");
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  std::cout << best << '\n';
}

}  // namespace

int main(int count, char** words) try {
  const std::vector<std::string> arguments(words + 1, words + count);
  const std::string verb = arguments.empty() ? "" : arguments[0];
  if (arguments.size() >= 4 && verb == "train") {
    std::vector<std::string> texts;
    for (std::size_t i = 3; i < arguments.size(); ++i)
      texts.push_back(rapt::detail::read_file(arguments[i], limit));
    rapt::Tokenizer::train(texts, std::stoll(arguments[1])).save(arguments[2]);
  } else if (arguments.size() == 2 && verb == "bytes") {
    rapt::Tokenizer::bytes().save(arguments[1]);
  } else if (arguments.size() == 3 && verb == "copy") {
    rapt::Tokenizer::load(arguments[1]).save(arguments[2]);
  } else if (arguments.size() == 3 && verb == "encode") {
    const rapt::Tokenizer tokenizer = rapt::Tokenizer::load(arguments[1]);
    for (const auto id :
         tokenizer
             .encode(rapt::detail::read_file(arguments[2], limit), {.add_special_tokens = false})
             .ids)
      std::cout << id << '\n';
  } else if (arguments.size() == 4 && verb == "batch") {
    batch(rapt::Tokenizer::load(arguments[1]), arguments[2], arguments[3]);
  } else if (arguments.size() == 3 && verb == "time") {
    time(rapt::Tokenizer::load(arguments[1]), rapt::detail::read_file(arguments[2], limit));
  } else {
    std::cerr << "tokenizer_tool: see the beginning of its source\n";
    return 2;
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << "tokenizer_tool: " << error.what() << '\n';
  return 1;
}
