#include <gtest/gtest.h>

#include <string>

#include "rapt/pattern.h"
#include "support/pattern_rules.h"

namespace rapt {
namespace {

using test::random_rule;

std::string parse_error_of(std::string_view text) {
  try {
    Pattern::parse(text);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

TEST(PatternText, SaysWhatCxxSays) {
  const std::pair<std::string_view, Pattern> same[] = {
      {"full", full()},
      {"full()", full()},
      {" causal ( ) ", causal()},
      {"causal(last)", causal()},
      {"causal(first)", causal(Align::first)},
      {"window(512)", window(512, 512)},
      {"window(256,-3)", window(256, -3)},
      {"window(512, first)", window(512, 512, Align::first)},
      {"window(1, 2, first)", window(1, 2, Align::first)},
      {"window(1, 2, last)", window(1, 2)},
      {"tokens({0, 7})", tokens({0, 7})},
      {"tokens(0, 7)", tokens({0, 7})},
      {"tokens()", tokens({})},
      {"prefix(16)", prefix(16)},
      {"documents(3, 5, 2)", documents({3, 5, 2})},
      {"documents({3, 5, 2})", documents({3, 5, 2})},
      {"documents({3, 5}, {4, 4})", documents({3, 5}, {4, 4})},
      {"documents({}, {})", documents({}, {})},
      {"blocks(64, {{0}, {0, 1}, {}})", blocks(64, {{0}, {0, 1}, {}})},
      {"keys(100)", keys(100)},
      {"dilated(2, 4, 5)", dilated(2, 4, 5)},
      {"causal&window(512,0)", causal() & window(512, 0)},
      {"causal | keys(3) & prefix(4)", causal() | (keys(3) & prefix(4))},
      {"(causal | keys(3)) & prefix(4)", (causal() | keys(3)) & prefix(4)},
      {"((causal)) & (keys(3) & full)", causal() & keys(3) & full()},
      {"\tfull\n|\r causal", full() | causal()},
  };
  for (const auto& [text, pattern] : same) EXPECT_EQ(Pattern::parse(text), pattern) << text;
}

TEST(PatternText, IsCanonical) {
  EXPECT_EQ(to_string(Pattern()), "full");
  EXPECT_EQ(to_string(Pattern::parse("tokens(7,0,7)|causal()")), "tokens({0, 7}) | causal");
  EXPECT_EQ(to_string(Pattern::parse("(full|causal)&((window(4)))")),
            "(full | causal) & window(4, 4)");
  EXPECT_EQ(to_string(Pattern::parse("full|(causal&keys(4))")), "full | causal & keys(4)");
  EXPECT_EQ(to_string(full() & full() & full()), "full & full & full");
  EXPECT_EQ(to_string(documents({3, 5})), "documents({3, 5})");
  const bool may_see[] = {true, true, false, true, false, false, false, false};
  EXPECT_EQ(to_string(mask(may_see, 2, 4)), "mask(4, {{0:2, 3:4}, {}})");
}

TEST(PatternText, ParsesBackToTheSamePattern) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 500; ++round) {
    const Lengths lengths{static_cast<Index>(random() % 30), static_cast<Index>(random() % 30)};
    const Pattern pattern = random_rule(random, lengths, 4).pattern;
    ASSERT_EQ(Pattern::parse(to_string(pattern)), pattern) << to_string(pattern);
    ASSERT_EQ(to_string(Pattern::parse(to_string(pattern))), to_string(pattern));
  }
}

TEST(PatternText, PointsAtTheMistake) {
  EXPECT_EQ(parse_error_of("causal & windw(512)"),
            "pattern: column 10: found 'windw', expected a pattern; did you mean 'window'?\n"
            "  causal & windw(512)\n"
            "           ^");
  EXPECT_EQ(parse_error_of("full\n\xff"),
            "pattern: column 6: found byte 0xff, expected '&', '|' or the end of the text\n"
            "  full ?\n"
            "       ^");
  EXPECT_EQ(parse_error_of(""),
            "pattern: column 1: found the end of the text, expected a pattern\n"
            "  \n"
            "  ^");
}

TEST(PatternText, ShowsOnlyTheNeighbourhoodOfAMistakeInALongText) {
  std::string text = "full";
  for (int i = 0; i < 1000; ++i) text += " | full";
  text.insert(5004, "!");
  const std::string error = parse_error_of(text);
  EXPECT_EQ(first_line(error), "pattern: column 5005: found '!', expected a pattern");
  const std::size_t picture = error.find('\n') + 1;
  const std::size_t caret_line = error.find('\n', picture) + 1;
  EXPECT_LE(caret_line - picture, 90u);
  EXPECT_EQ(error[picture + error.find('^') - caret_line], '!');
}

TEST(PatternText, NamesWhatItFoundAndWhatItExpected) {
  const std::pair<std::string_view, std::string_view> mistakes[] = {
      {"causal causal", "column 8: found 'causal', expected '&', '|' or the end of the text"},
      {"causal & ", "column 10: found the end of the text, expected a pattern"},
      {"& causal", "column 1: found '&', expected a pattern"},
      {"(causal", "column 8: found the end of the text, expected '&', '|' or ')'"},
      {"causal)", "column 7: found ')', expected '&', '|' or the end of the text"},
      {"casual", "column 1: found 'casual', expected a pattern; did you mean 'causal'?"},
      {"Window(3)", "column 1: found 'Window', expected a pattern; did you mean 'window'?"},
      {"xyz(3)",
       "column 1: found 'xyz', expected one of full, causal, window, tokens, prefix, documents, "
       "blocks, keys, dilated, chunks, mask, lsh"},
      {"full(3)", "column 6: found '3', expected ')'"},
      {"causal(middle)", "column 8: found 'middle', expected 'first' or 'last'"},
      {"causal(first", "column 13: found the end of the text, expected ')'"},
      {"window", "column 7: found the end of the text, expected '('"},
      {"window()", "column 8: found ')', expected an integer"},
      {"window(3 4)", "column 10: found '4', expected ',' or ')'"},
      {"window(3, )", "column 11: found ')', expected an integer, 'first' or 'last'"},
      {"window(3, 4, 5)", "column 14: found '5', expected 'first' or 'last'"},
      {"window(3, 4, first, 5)", "column 19: found ',', expected ')'"},
      {"window(1.5)", "column 9: found '.', expected ',' or ')'"},
      {"window(- 5)", "column 8: found '-', expected an integer"},
      {"window(+5)", "column 8: found '+', expected an integer"},
      {"tokens({1, 2)", "column 13: found ')', expected ',' or '}'"},
      {"tokens({1}, 2)", "column 11: found ',', expected ')'"},
      {"tokens(1, 2", "column 12: found the end of the text, expected ',' or ')'"},
      {"prefix 3", "column 8: found '3', expected '('"},
      {"documents({1} {2})", "column 15: found '{', expected ',' or ')'"},
      {"documents({1}, 2)", "column 16: found '2', expected '{'"},
      {"blocks(4, 3)", "column 11: found '3', expected '{'"},
      {"blocks(4, {3})", "column 12: found '3', expected '{'"},
      {"blocks(4)", "column 9: found ')', expected ','"},
      {"lsh(32, 2, 8)", "column 12: buckets or a seed? Write {8} for buckets, {}, 8 for a seed"},
      {"lsh(32, 2, 8, once)",
       "column 12: buckets or a seed? Write {8} for buckets, {}, 8 for a seed"},
      {"dilated(4, 3)", "column 13: found ')', expected ','"},
      {"mask(4, {{x}})", "column 11: found 'x', expected a range like 0:3"},
      {"mask(4, {{1, 2}})", "column 12: found ',', expected ':'"},
      {"keys(9223372036854775808)",
       "column 6: '9223372036854775808' does not fit a signed 64-bit integer"},
      {"window(-9223372036854775809)",
       "column 8: '-9223372036854775809' does not fit a signed 64-bit integer"},
      {"keys(99999999999999999999999999999999999)",
       "column 6: '999999999999999999999999...' does not fit a signed 64-bit integer"},
  };
  for (const auto& [text, message] : mistakes)
    EXPECT_EQ(first_line(parse_error_of(text)), "pattern: " + std::string(message)) << text;
}

TEST(PatternText, PutsTheColumnOnArgumentsThatMeanNothing) {
  const std::pair<std::string_view, std::string_view> mistakes[] = {
      {"causal & prefix(-1)", "column 10: prefix: -1 positions given, expected 0 or more"},
      {"tokens(-4)", "column 1: tokens: position -4 given, expected 0 to 9223372036854775806"},
      {"blocks(4, {{1, 1}})", "column 1: blocks: query block 0 names key block 1 twice"},
      {"causal & rows(4, {{0:2}})", "column 10: rows(...) is called mask(...)"},
      {"mask(-1, {})", "column 1: mask: -1 keys given, expected 0 or more"},
      {"mask(4, {{3:5}})", "column 1: mask: 3:5 is not a range of the 4 keys"},
      {"mask(4, {{2:2}})", "column 1: mask: 2:2 is not a range of the 4 keys"},
      {"mask(4, {{0:2, 2:3}})",
       "column 1: mask: 2:3 does not begin after the range before it, which ends at 2"},
  };
  for (const auto& [text, message] : mistakes)
    EXPECT_EQ(first_line(parse_error_of(text)), "pattern: " + std::string(message)) << text;
}

std::string nested(std::size_t depth) {
  return std::string(depth, '(') + "causal" + std::string(depth, ')');
}

TEST(PatternText, LimitsNesting) {
  EXPECT_EQ(Pattern::parse(nested(256)), causal());
  EXPECT_EQ(first_line(parse_error_of(nested(257))),
            "pattern: column 257: parentheses nest deeper than 256 levels");
  EXPECT_EQ(first_line(parse_error_of(std::string(1'000'000, '('))),
            "pattern: column 257: parentheses nest deeper than 256 levels");
}

TEST(PatternText, LimitsTheTreeItBuilds) {
  std::string text = "full";
  for (int level = 0; level < 256; ++level) text = "(full&keys(1)|" + text + ")&full";
  EXPECT_NE(
      parse_error_of(text).find("pattern is too deep: & and | alternate over more than 256 levels"),
      std::string::npos);
}

TEST(PatternText, TakesLongTexts) {
  std::string chain = "full";
  for (int i = 0; i < 50'000; ++i) chain += i % 2 == 0 ? " | causal" : "&keys(3)";
  EXPECT_EQ(to_string(Pattern::parse(to_string(Pattern::parse(chain)))).size(),
            to_string(Pattern::parse(chain)).size());
  EXPECT_EQ(first_line(parse_error_of(std::string(1'000'000, 'x'))).substr(0, 60),
            "pattern: column 1: found 'xxxxxxxxxxxxxxxxxxxxxxxx...', expe");
}

/// Either a pattern that round-trips or std::invalid_argument; anything else fails the test.
void expect_survives(const std::string& text) {
  try {
    const Pattern pattern = Pattern::parse(text);
    ASSERT_EQ(Pattern::parse(to_string(pattern)), pattern) << text;
    if (to_string(pattern).size() < 1000) pattern.keys_of(1, {3, 70});
  } catch (const std::invalid_argument& error) {
    ASSERT_NE(std::string_view(error.what()), "");
  }
}

TEST(PatternText, SurvivesRandomWords) {
  const std::string_view words[] = {"full",
                                    "causal",
                                    "window",
                                    "tokens",
                                    "prefix",
                                    "documents",
                                    "blocks",
                                    "keys",
                                    "dilated",
                                    "mask",
                                    "first",
                                    "last",
                                    "(",
                                    ")",
                                    "{",
                                    "}",
                                    ",",
                                    ":",
                                    "&",
                                    "|",
                                    " ",
                                    "-",
                                    "0",
                                    "1",
                                    "3",
                                    "64",
                                    "9223372036854775807",
                                    "-9223372036854775808",
                                    "({{0}})",
                                    "(3)",
                                    "(2, 1)",
                                    "(2, {{0:1}, {}, {1:2}})"};
  std::mt19937_64 random(5);
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (auto count = random() % 14; count > 0; --count) text += words[random() % std::size(words)];
    expect_survives(text);
  }
}

TEST(PatternText, SurvivesRandomBytes) {
  std::mt19937_64 random(6);
  for (int round = 0; round < 10'000; ++round) {
    std::string text(random() % 24, '\0');
    for (char& c : text) c = static_cast<char>(random());
    expect_survives(text);
  }
}

TEST(PatternText, SurvivesDamage) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 5'000; ++round) {
    std::string text = to_string(random_rule(random, {3, 70}, 2).pattern).substr(0, 200);
    for (auto count = 1 + random() % 3; count > 0 && !text.empty(); --count) {
      const auto at = random() % text.size();
      if (random() % 2 == 0)
        text.erase(at, 1);
      else
        text[at] = text[random() % text.size()];
    }
    expect_survives(text);
  }
}

}  // namespace
}  // namespace rapt
