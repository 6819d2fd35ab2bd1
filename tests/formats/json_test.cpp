#include "formats/config/json.h"

#include <gtest/gtest.h>

#include "formats/config/fields.h"
#include "formats/config/toml.h"
#include "support/temporary_folder.h"

namespace rapt::test {
using namespace detail;
namespace {

TEST(Json, ReadsWhatIsJson) {
  const Json value = parse_json(R"( {"a": [1, -2, 2.5, true, null, "\u00e9"], "b": {}} )", "t");
  EXPECT_EQ(value["a"][1], -2);
  EXPECT_EQ(value["a"][5], "é");
  EXPECT_TRUE(value["b"].empty());
  EXPECT_EQ(parse_json("\xEF\xBB\xBF{}", "t"), Json::object());  // CF-01: a byte order mark
}

TEST(Json, IntegersAreExact) {
  const Json value =
      parse_json("[9007199254740993, 18446744073709551615, -9223372036854775808]", "t");
  EXPECT_EQ(value[0].get<std::int64_t>(), 9007199254740993);  // not a double
  EXPECT_EQ(value[1].get<std::uint64_t>(), 18446744073709551615u);
  EXPECT_EQ(value[2].get<std::int64_t>(), std::numeric_limits<std::int64_t>::min());
}

TEST(Json, RefusesWithThePlace) {
  const auto refused = [](const std::string& text, const std::vector<std::string>& words) {
    expect_broken([&] { parse_json(text, "x.json"); }, words);
  };
  refused("", {"x.json: JSON at byte 0: "});
  refused("{\"a\": 1", {"x.json: JSON at byte 7: ", "unexpected end of input"});
  refused("{\"a\": 1} x", {"byte 10", "end of input"});
  refused("[1, // no\n2]", {"byte 5"});
  refused("[NaN]", {"byte 2"});
  refused("[1e999]", {"overflow"});
  refused("[\"\\ud800\"]", {"surrogate"});
  refused("[\"\xC0\xAF\"]", {"invalid string"});  // overlong
  refused("[\"\xFF\"]", {"invalid string"});
  refused("\xF8\x1b[31m", {"byte 1", R"(last read: "\ufffd")"});
  refused("{\"a\" \x01 1}", {"<U+0001>\"; expected ':'"});
  refused(R"({"a": 1, "b": 2, "a": 3})", {"byte 20", "key \"a\" occurs twice"});
  refused(R"({"b": {"a\u001b": 1, "a\u001b": 2}})", {R"("a\u001b")", "twice"});
}

TEST(Json, MessagesAreShort) {
  try {
    parse_json("[\"" + std::string(500'000, 'x'), "t");
    ADD_FAILURE() << "accepted";
  } catch (const std::runtime_error& error) {
    EXPECT_LT(std::string(error.what()).size(), 300u) << error.what();
  }
}

TEST(Json, HasLimits) {
  std::string deep(100'000, '[');
  expect_broken([&] { parse_json(deep, "t"); }, {"byte 65", "nested deeper than 64"});
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  expect_broken([&] { parse_json(objects, "t"); }, {"nested deeper than 64"});
  EXPECT_NO_THROW(parse_json(std::string(64, '[') + std::string(64, ']'), "t"));
  const std::string longer = "[\"" + std::string((1 << 20) + 1, 'x') + "\"]";
  expect_broken([&] { parse_json(longer, "t"); }, {"string of 1048577 bytes", "1048576"});
  expect_broken([&] { parse_json("[1, 2]", "t", {.bytes = 5}); }, {"6 bytes, the limit is 5"});
  // Every list costs far more memory than its three letters.
  std::string lists = "[";
  for (int i = 0; i < 3'000'000; ++i) lists += "[],";
  lists += "0]";
  expect_broken([&] { parse_json(lists, "t"); }, {"takes more than", "bytes of memory"});
}

TEST(Json, NamesFromOutsideAreSafeToPrint) {
  EXPECT_EQ(printable("a\x1b[31m\n\"é\xFF").text(), R"("a\u001b[31m\n\"\u00e9\ufffd")");
  EXPECT_EQ(printable(std::string(1000, 'x')).text().size(),
            100 + 2 + std::string("... (1000 bytes)").size());
}

TEST(Toml, BecomesJson) {
  const Json value = parse_toml(
      "steps = 100\n[optim]\nlr = 3e-4\nbetas = [0.9, 0.95]\n"
      "name = \"adamw\"\nfused = false\n[[data]]\npath = \"a\"\n",
      "t");
  EXPECT_EQ(value, parse_json(R"({"steps": 100, "optim": {"lr": 3e-4, "betas": [0.9, 0.95],
                                  "name": "adamw", "fused": false}, "data": [{"path": "a"}]})",
                              "t"));
  EXPECT_TRUE(value["steps"].is_number_integer());
  EXPECT_TRUE(value["optim"]["lr"].is_number_float());
}

/// toml++ takes for granted that a name follows; found by fuzzing.
TEST(Toml, RefusesTablesWithoutAName) {
  for (const char* text : {"[`a]", "[[$]]", "[ =1]", "[#", "[mod\u03A0l]\na = 1", "\u03A0 = 1"})
    expect_broken([&] { parse_toml(text, "run.toml"); }, {"run.toml"});
}

TEST(Toml, RefusesWithTheLine) {
  expect_broken([] { parse_toml("a = 1\nb = = 2\n", "run.toml"); }, {"run.toml:2:"});
  expect_broken([] { parse_toml("a = 1\na = 2\n", "run.toml"); }, {"run.toml:2:", "a"});
  expect_broken([] { parse_toml("a = 1\nwhen = 2020-01-01\n", "run.toml"); },
                {"run.toml:2: dates"});
  const std::string deep = "a = " + std::string(100'000, '[');
  expect_broken([&] { parse_toml(deep, "run.toml"); }, {"run.toml:1:"});
  TemporaryFolder folder;
  put(folder / "a.toml", "a = 1 2");
  expect_broken([&] { read_toml(folder / "a.toml"); }, {folder / "a.toml:1:"});
  expect_broken([&] { read_toml(folder / "none.toml"); }, {folder / "none.toml", "No such file"});
}

TEST(Fields, AreReadByTypeRangeAndDefault) {
  Fields fields(parse_json(R"({"n": 3, "x": 2, "y": 0.5, "b": true, "s": "gelu", "l": [1, 2],
                               "w": ["a"], "o": {"lr": 1e-3}, "z": null})",
                           "t"),
                "t");
  EXPECT_EQ(fields.integer("n", {1, 10}), 3);
  EXPECT_EQ(fields.integer("missing", {1, 10}, 7), 7);
  EXPECT_EQ(fields.integer("z", {1, 10}, 8), 8);
  EXPECT_EQ(fields.real("x"), 2.0);
  EXPECT_EQ(fields.real("y", {0, 1}), 0.5);
  EXPECT_TRUE(fields.boolean("b"));
  EXPECT_EQ(fields.choice("s", {"relu", "gelu"}), "gelu");
  EXPECT_EQ(fields.integers("l"), (std::vector<Index>{1, 2}));
  EXPECT_EQ(fields.texts("w"), std::vector<std::string>{"a"});
  Fields inner = fields.object("o");
  EXPECT_EQ(inner.real("lr"), 1e-3);
  inner.done();
  EXPECT_EQ(fields.object("none").real("lr", {}, 5), 5);
  fields.done();
}

TEST(Fields, RefuseWithTheWholeKey) {
  const Json config = parse_json(R"({"heads": 1.5, "layers": -1, "big": 18446744073709551615,
      "name": "\u001b", "optim": {"lr_rate": 1, "beta": "x", "t": true}, "list": [1, "a"]})",
                                 "t");
  Fields top(config, "run.toml");
  expect_broken([&] { top.integer("heads"); }, {"run.toml: heads is 1.5, expected a whole number"});
  expect_broken([&] { top.integer("layers", {1, 9}); }, {"layers is -1, expected 1 to 9"});
  expect_broken([&] { top.integer("layers", {.lowest = 1}); }, {"expected at least 1"});
  expect_broken([&] { top.integer("big"); }, {"big is 18446744073709551615, expected a whole"});
  expect_broken([&] { top.integer("none"); }, {"run.toml: none is missing"});
  expect_broken([&] { top.integer("name"); }, {R"(name is "\u001b", expected a whole number)"});
  expect_broken([&] { top.integer("optim"); }, {"optim is an object"});
  expect_broken([&] { top.boolean("layers"); }, {"layers is -1, expected true or false"});
  expect_broken([&] { top.text("layers"); }, {"expected text"});
  expect_broken([&] { top.choice("name", {"a", "b", "c"}); }, {"expected a, b or c"});
  expect_broken([&] { top.integers("list"); }, {"list is a list, expected a whole number"});
  expect_broken([&] { top.texts("list"); }, {"expected a list of texts"});
  expect_broken([&] { top.object("layers"); }, {"run.toml: layers is -1, expected an object"});
  Fields optim = top.object("optim");
  expect_broken([&] { optim.integer("t"); }, {"optim.t is true"});
  expect_broken([&] { optim.real("beta"); }, {"optim.beta is \"x\", expected a number"});
  optim.real("lr", {0, 1}, 0.1);
  optim.real("momentum", {0, 1}, 0.1);
  expect_broken([&] { optim.done(); },
                {"run.toml: unknown key `optim.lr_rate`, did you mean `optim.lr`?"});
  expect_broken([&] { Fields(Json(3), "c.json"); }, {"c.json: the whole is 3"});
  Fields spelled(parse_json(R"({"learning_rat": 1})", "t"), "t");
  spelled.real("learning_rate", {}, 0);
  spelled.real("steps", {}, 0);
  expect_broken([&] { spelled.done(); },
                {"unknown key `learning_rat`, did you mean `learning_rate`?"});
  Fields far(parse_json(R"({"zebra": 1})", "t"), "t");
  far.real("steps", {}, 0);
  expect_broken([&] { far.done(); }, {"unknown key `zebra`"});
  far.ignore({"zebra"});
  far.done();
}

TEST(Fields, RefuseWhatIsNotFinite) {
  Fields fields(parse_toml("a = inf\nb = nan\n", "t"), "t");
  expect_broken([&] { fields.real("a"); }, {"a is inf, expected a number"});
  expect_broken([&] { fields.real("b"); }, {"b is nan, expected a number"});
}

}  // namespace
}  // namespace rapt::test
