#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/indexed_vector.h"
#include "head_report/head_report_json.h"
#include "head_report/page_assets.h"

namespace rapt {
using namespace detail;
namespace {

// A cell of a map is one character: no probability, or one of the levels, evenly spaced by their
// logarithms. Runs of nothing are one character too. heads.js reads it back.
constexpr double smallest = 1e-3;
constexpr std::string_view levels =
    "()*+,-./0123456789:;=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_`abcdefghijklmnopqrstuvwxyz{|}~";
struct Run {
  char mark;
  Index cells;
};
constexpr std::array runs = {Run{'&', 256}, Run{'%', 64}, Run{'$', 16},
                             Run{'#', 4},   Run{'!', 2},  Run{' ', 1}};

/// Pages stay below some 6 MB.
constexpr std::size_t max_map_bytes = 5'000'000;

void end_run(std::string& text, Index& nothing) {
  for (const Run& run : runs)
    for (; nothing >= run.cells; nothing -= run.cells) text += run.mark;
}

char level_of(double p) {
  const auto last = static_cast<double>(levels.size() - 1);
  const double place = std::round(last * (1 - std::log10(p) / std::log10(smallest)));
  return levels[static_cast<std::size_t>(std::clamp(place, 0.0, last))];
}

/// Joins this many cells along both sides.
std::string map_text(const Tensor& map, Index join) {
  const Index side = map.shape()[0], cells = (side + join - 1) / join;
  IndexedVector<double> row(cells);
  std::string text;
  Index nothing = 0;
  for (Index first = 0; first < side; first += join) {
    const Index count = std::min(join, side - first);
    std::ranges::fill(row, 0.0);
    for (Index i = first; i < first + count; ++i)
      for (Index j = 0; j < side; ++j)
        row[j / join] += static_cast<double>(map.data()[i * side + j]) / static_cast<double>(count);
    for (const double p : row) {
      if (!(p >= smallest)) {  // NaN too
        ++nothing;
        continue;
      }
      end_run(text, nothing);
      text += level_of(p);
    }
  }
  end_run(text, nothing);
  return text;
}

Json maps_of(const HeadReport& report, Index join) {
  Json maps = Json::array();
  std::size_t bytes = 0;
  for (const HeadStats& head : report.heads) {
    if (head.map.empty()) break;
    maps.push_back(map_text(head.map, join));
    bytes += maps.back().get_ref<const std::string&>().size();
    if (bytes > max_map_bytes) return maps_of(report, join + 1);
  }
  return {{"join", join}, {"texts", maps}};
}

/// Safe inside a script element.
std::string script_data(const Json& data) {
  std::string text = data.dump(-1, ' ', false, Json::error_handler_t::replace), safe;
  safe.reserve(text.size());
  for (const char c : text)
    if (c == '<')
      safe += "\\u003c";
    else
      safe += c;
  return safe;
}

void put(std::string& page, std::string_view mark, std::string_view text) {
  page.replace(page.find(mark), mark.size(), text);
}

}  // namespace

std::string to_html(const HeadReport& report) {
  Json data = json_of(report);
  data["version"] = version();
  data["map_tile"] = report.map_tile;
  data["source_map_tile"] = report.source_map_tile;
  data["maps"] = maps_of(report, 1);
  data["levels"] = levels;
  data["smallest"] = smallest;
  std::string page(heads_page_html);
  put(page, "/*style*/", heads_page_css);
  put(page, "/*script*/", heads_page_js);
  put(page, "/*data*/", script_data(data));
  return page;
}

}  // namespace rapt
