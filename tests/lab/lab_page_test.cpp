#include <gtest/gtest.h>

#include "lab/charts/chart.h"
#include "lab/charts/figure.h"
#include "lab/page/assets.h"
#include "rapt/models/lab.h"

namespace rapt::lab {
namespace {

Page small_page() {
  const LineChart chart{.x = {.field = "x", .title = "x"},
                        .y = {.field = "y", .title = "y"},
                        .layers = {{.table = "rows", .y = "y", .series = "kind"}},
                        .sliders = {{.field = "step", .title = "step", .start = 2}},
                        .facet = "panel"};
  Json row = {{"x", 1}, {"y", 2}, {"kind", "</script><!--"}, {"step", 2}, {"panel", "a"}};
  Figure drawn{.name = "drawn",
               .title = "A <b>title</b>",
               .text = "x < y & <i>z</i>",
               .data = {{"rows", Json::array({row})}},
               .spec = spec_of(chart)};
  Figure shown{.name = "shown",
               .title = "A table",
               .text = "",
               .data = {},
               .spec = {},
               .columns = {"b", "a"}};
  shown.data["rows"] = Json::array({{{"a", 1}, {"b", "<em>"}}});
  return {.title = "T",
          .text = "",
          .facts = {"f"},
          .sections = {{.name = "s",
                        .title = "S",
                        .text = "",
                        .command = "rapt lab s",
                        .figures = {drawn, shown},
                        .takeaway = "Take it."}},
          .words = {{"word", "meaning"}}};
}

Index count(const std::string& text, const std::string& what) {
  Index found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
    ++found;
  return found;
}

TEST(LabPage, EscapesWhatIsNoMarkup) {
  const std::string html = html_of(small_page());
  EXPECT_NE(html.find("A <b>title</b>"), std::string::npos);
  EXPECT_NE(html.find("x &lt; y &amp; <i>z</i>"), std::string::npos);
  EXPECT_NE(html.find("<td>&lt;em&gt;</td>"), std::string::npos);
  EXPECT_LT(html.find("<th>b</th>"), html.find("<th>a</th>"));
  EXPECT_EQ(count(html, "</script>"), count(html, "<script>") + count(html, "<script type"));
}

TEST(LabPage, NeedsNothingElse) {
  const std::string html = html_of(small_page());
  EXPECT_NE(html.find("default-src 'none'"), std::string::npos);
  EXPECT_EQ(html.find("<link"), std::string::npos);
  EXPECT_EQ(html.find("<script src"), std::string::npos);
  EXPECT_EQ(html.find("sourceMappingURL"), std::string::npos);
  if (vega_parts().empty())
    EXPECT_NE(html.find("built without Vega"), std::string::npos);
  else
    EXPECT_NE(html.find("UW Interactive Data Lab"), std::string::npos);
}

TEST(LabPage, HasItsNumbersInTheJson) {
  const Json json = json_of(small_page());
  const Json& figures = json["sections"][0]["figures"];
  EXPECT_EQ(figures[0]["title"], "A title");
  EXPECT_EQ(figures[0]["data"]["rows"][0]["y"], 2);
  EXPECT_EQ(figures[1]["data"]["rows"][0]["b"], "<em>");
  EXPECT_EQ(json["sections"][0]["command"], "rapt lab s");
}

TEST(LabChart, ReadsOnlyTablesThatItNames) {
  const LineChart lines{.x = {.field = "x", .title = "x", .scale = Axis::Scale::log},
                        .y = {.field = "a.b", .title = "y"},
                        .layers = {{.table = "one", .y = "a.b", .series = "s"},
                                   {.table = "two", .mark = Layer::Mark::rule, .y = "a.b"}}};
  const Json spec = spec_of(lines);
  std::vector<std::string> names;
  for (const Json& table : spec["data"]) names.push_back(table["name"]);
  EXPECT_EQ(names, (std::vector<std::string>{"one", "one shown", "two", "two shown"}));
  // A dot in the name of a field is no path into it.
  EXPECT_EQ(spec["scales"][1]["domain"]["fields"][0]["field"], "a\\.b");
}

TEST(Lab, NamesItsExperimentsAndRefusesOthers) {
  EXPECT_EQ(lab_experiments().size(), 5u);
  try {
    run_lab({.experiments = {"weather"}});
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(
        error.what(),
        "lab: there is no experiment \"weather\", expected one of scale, gradients, length, "
        "sparsity, positions");
  }
}

TEST(Lab, IsTheSameForTheSameSeed) {
  const LabOptions options{.experiments = {"positions"}, .seed = 3};
  const LabReport one = run_lab(options, Context(1)), two = run_lab(options, Context(1));
  EXPECT_EQ(one.json, two.json);
  EXPECT_EQ(one.html, two.html);
}

TEST(Lab, TellsHowFarItIs) {
  double last = -1;
  LabOptions options{.experiments = {"positions"}};
  options.progress = [&](double done, const std::string& what) {
    EXPECT_GE(done, last);
    EXPECT_LE(done, 1 + 1e-9);
    EXPECT_FALSE(what.empty());
    last = done;
  };
  run_lab(options);
  EXPECT_NEAR(last, 1, 1e-9);
  options.progress = [](double, const std::string&) { throw std::runtime_error("enough"); };
  EXPECT_THROW(run_lab(options), std::runtime_error);
}

}  // namespace
}  // namespace rapt::lab
