// For tests/oracles/test_tokenizer.py.
//   tokenizer_tool learn ENTRIES OUT FILE...   learns from the files, writes a tokenizer.json
//   tokenizer_tool bytes OUT                   writes the byte tokenizer
//   tokenizer_tool encode TOKENIZER FILE       prints the ids of the file's text
#include <iostream>

#include "base/files.h"
#include "rapt/tokenizer.h"

int main(int count, char** words) try {
  const std::vector<std::string> arguments(words + 1, words + count);
  constexpr rapt::Index limit = rapt::Index{1} << 32;
  if (arguments.size() >= 4 && arguments[0] == "learn") {
    std::vector<std::string> texts;
    for (std::size_t i = 3; i < arguments.size(); ++i)
      texts.push_back(rapt::read_file(arguments[i], limit));
    rapt::Tokenizer::learn(texts, std::stoll(arguments[1])).write(arguments[2]);
  } else if (arguments.size() == 2 && arguments[0] == "bytes") {
    rapt::Tokenizer::bytes().write(arguments[1]);
  } else if (arguments.size() == 3 && arguments[0] == "encode") {
    const rapt::Tokenizer tokenizer = rapt::Tokenizer::read(arguments[1]);
    for (const auto id : tokenizer.encode(rapt::read_file(arguments[2], limit)))
      std::cout << id << '\n';
  } else {
    std::cerr << "tokenizer_tool: see the beginning of its source\n";
    return 2;
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << "tokenizer_tool: " << error.what() << '\n';
  return 1;
}
