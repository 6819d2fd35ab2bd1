#include "fuzz/target.h"

namespace rapt::fuzz {

std::vector<std::string> no_words() { return {}; }

std::vector<std::string> json_words(std::vector<std::string> more) {
  std::vector<std::string> words = {"0",
                                    "-1",
                                    "1.5",
                                    "1e999",
                                    "18446744073709551615",
                                    "9223372036854775807",
                                    "\"\"",
                                    "[]",
                                    "4294967296",
                                    "{}",
                                    "\"\\ud800\"",
                                    "null",
                                    "true",
                                    "[[[[",
                                    "{\"a\":",
                                    ",",
                                    "false",
                                    "]",
                                    "}",
                                    "1e-9",
                                    "2147483648,",
                                    "\"\\u0000\""};
  for (const std::string& word : more) words.push_back("\"" + word + "\"");
  return words;
}

}  // namespace rapt::fuzz
