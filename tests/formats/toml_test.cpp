#include "formats/config/toml.h"

#include <gtest/gtest.h>

#include "support/temporary_folder.h"

namespace rapt::test {
using namespace detail;
namespace {

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(Toml, IsReadAsJsonHasIt) {
  const Json value = parse_toml(
      "# a.b.c [ { \" '\n"
      "text = \"a.b \\\" [ {\"\n"
      "lines = '''\na.b.c\n'''\n"
      "numbers = [1.5, 2.5,\n  3.5, # [\n  4.5]\n"
      "table = {x = 1, y.z = 2.25}\n"
      "[one.two]\nthree.four = true\n",
      "test");
  EXPECT_EQ(value, (Json{{"text", "a.b \" [ {"},
                         {"lines", "a.b.c\n"},
                         {"numbers", {1.5, 2.5, 3.5, 4.5}},
                         {"table", {{"x", 1}, {"y", {{"z", 2.25}}}}},
                         {"one", {{"two", {{"three", {{"four", true}}}}}}}}));
}

TEST(Toml, ManyValuesAreNotDeep) {
  std::string text = "list = [";
  for (int i = 0; i < 5000; ++i) text += std::to_string(i) + ".5, ";
  text += "]\n";
  for (int i = 0; i < 500; ++i) text += "key" + std::to_string(i) + " = {a = 1.5, b = [0.5]}\n";
  for (int i = 0; i < 500; ++i) text += "[table" + std::to_string(i) + ".a.b]\nc.d = 1.5\n";
  EXPECT_EQ(parse_toml(text, "test").size(), 1001u);
}

TEST(Toml, DepthIsBoundedHoweverItIsSpelled) {
  EXPECT_NO_THROW(parse_toml("a" + repeated(".b", 60) + " = 1", "test"));
  for (const int levels : {70, 40'000}) {
    const std::string texts[] = {
        "a" + repeated(".b", levels) + " = 1",
        "a" + repeated(" . \"b\"", levels) + " = 1",
        "[a" + repeated(".b", levels) + "]",
        "x = 1\n  [[a" + repeated(".b", levels) + "]]",
        "a = " + repeated("[", levels) + repeated("]", levels),
        "a = " + repeated("{b = ", levels) + "1" + repeated("}", levels),
        "[a" + repeated(".b", levels / 2) + "]\nc" + repeated(".d", levels / 2) + " = 1",
        "a = {b = \"\"\"c\"\"\"\", d" + repeated(".e", levels) + " = 1}",
        "a = {b = '''c''''', d" + repeated(".e", levels) + " = 1}",
        "\xEF\xBB\xBF[a" + repeated(".b", levels / 2) + "]\nc" + repeated(".d", levels / 2) +
            " = 1",
        "a = [\n" + repeated("{b.c = [", levels / 3) + "1" + repeated("]}", levels / 3) + "]",
    };
    for (const std::string& text : texts)
      expect_broken([&] { parse_toml(text, "test"); }, {"test:", "nested deeper than 64"});
  }
}

TEST(Toml, WhatIsNoTomlIsRefusedAfterTheDepthIsKnown) {
  for (const char* text : {"[", "]", "a = \"", "a = '''", "\\", "a = {", "a.b.c", "}}}}", "[[[["})
    expect_broken([&] { parse_toml(text, "test"); }, {"test"});
}

}  // namespace
}  // namespace rapt::test
