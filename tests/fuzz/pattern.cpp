#include "text/stages/text_pattern.h"

#include "fuzz/target.h"
#include "text/unicode/characters.h"

namespace rapt::fuzz {
using namespace detail;
namespace {

/// An expression, a zero byte, and the text that is searched.
std::vector<std::string> seeds() {
  const std::string text = "It's  42 tokens,\nna\u00EFve \u65e5\u672c!";
  std::vector<std::string> made;
  for (const char* expression :
       {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
        R"((?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)",
        R"(\w+|[^\w\s]+)", R"(\d|\u0041|\x{42}|(?<=a)b(?>c*)$)", " +"})
    made.push_back(expression + std::string(1, '\0') + text);
  return made;
}

std::vector<std::string> words() {
  return {"\\p{L}", "\\p{N}",  "\\P{L}", "\\s", "\\S",   "\\d",   "\\w",   "(?:", "(?=",
          "(?!",    "(?<=",    "(?<!",   "(?>", "(?i:",  "[^",    "{1,3}", "+",   "*",
          "|",      "\\u0041", "\\x{",   "\\b", "{999}", "(a+)+", "$",     "^",   "??",
          "*+",     "&&",      "[:",     "\\r", "\\n",   "{2,}",  "(?R)",  ".",   "\\p{Lu}"};
}

std::function<void()> open(std::string_view input) {
  const std::size_t zero = input.find('\0');
  const std::string expression(input.substr(0, zero));
  const std::string text(zero == std::string_view::npos ? "" : input.substr(zero + 1));
  const TextPattern pattern = TextPattern::expression(expression, "fuzz");
  return [pattern, text = repaired(text)] {
    std::string whole;
    pattern.for_each(text, [&](std::string_view part, bool) { whole += part; });
    expect(whole == text, "parts that are not the text");
  };
}

}  // namespace

/// A letter may stand for a class of hundreds of ranges; expressions of so many have an end.
const Target pattern_target = {"pattern", seeds, words, open, 16 << 20};

}  // namespace rapt::fuzz
