#include "lab/charts/chart.h"

#include "lab/charts/spec_parts.h"

namespace rapt::lab {
using namespace detail;
namespace {

const char* name_of(Layer::Mark mark) {
  switch (mark) {
    case Layer::Mark::line:
      return "line";
    case Layer::Mark::dashes:
      return "dashes";
    case Layer::Mark::points:
      return "points";
    case Layer::Mark::band:
      return "band";
    case Layer::Mark::rule:
      return "rule";
    case Layer::Mark::upright:
      return "upright";
  }
  return "";
}

/// An array of one: braces around a single value may also mean the value.
Json one(Json value) { return Json::array({std::move(value)}); }

/// Lines that things are compared with have no colour of their own.
bool is_reference(const Layer& layer) {
  return layer.series.empty() &&
         (layer.mark == Layer::Mark::rule || layer.mark == Layer::Mark::upright);
}

/// The colour of a row, or of the whole layer.
Json color_of(const Layer& layer) {
  if (!layer.series.empty()) return scaled("color", layer.series);
  return {{"scale", "color"}, {"value", layer.label}};
}

Json color_sources(const std::vector<Layer>& layers) {
  Json sources = Json::array();
  for (const Layer& layer : layers) {
    if (is_reference(layer)) continue;
    sources.push_back(layer.series.empty() ? Json::array({layer.label})
                                           : source(layer.table, layer.series));
  }
  return sources;
}

Json rule_of(const LineChart& chart, const Layer& layer) {
  Json now =
      layer.mark == Layer::Mark::rule
          ? Json{{"x", {{"value", 0}}}, {"x2", {{"signal", "width"}}}, {"y", scaled("y", layer.y)}}
          : Json{{"y", {{"value", 0}}},
                 {"y2", {{"signal", "height"}}},
                 {"x", scaled("x", chart.x.field)}};
  if (!is_reference(layer)) now["stroke"] = color_of(layer);
  Json rule = mark_of("rule", layer.table, now);
  rule["style"] = "reference";
  return rule;
}

/// Points that show themselves under the pointer: a line alone tells only about its first row.
Json hover_points(const LineChart& chart, const Layer& layer) {
  Json points = mark_of("symbol", layer.table,
                        {{"x", scaled("x", chart.x.field)},
                         {"y", scaled("y", layer.y)},
                         {"size", {{"value", 70}}},
                         {"fill", color_of(layer)},
                         {"opacity", {{"value", 0}}}});
  points["encode"]["hover"] = {{"opacity", {{"value", 1}}}};
  return points;
}

Json line_of(const LineChart& chart, const Layer& layer) {
  Json now = {{"x", scaled("x", chart.x.field)},
              {"y", scaled("y", layer.y)},
              {"stroke", color_of(layer)},
              {"strokeWidth", {{"value", layer.mark == Layer::Mark::line ? 2.25 : 1.5}}}};
  if (layer.mark == Layer::Mark::dashes) now["strokeDash"] = {{"value", {5, 4}}};
  Json line = mark_of("line", layer.table, now);
  line["interactive"] = false;
  return grouped(layer.series, layer.table, line);
}

Json band_of(const LineChart& chart, const Layer& layer) {
  Json band = mark_of("area", layer.table,
                      {{"x", scaled("x", chart.x.field)},
                       {"y", scaled("y", layer.y)},
                       {"y2", scaled("y", layer.y2)},
                       {"fill", color_of(layer)},
                       {"fillOpacity", {{"value", 0.18}}}});
  band["interactive"] = false;
  return grouped(layer.series, layer.table, band);
}

Json points_of(const LineChart& chart, const Layer& layer) {
  Json points = mark_of("symbol", layer.table,
                        {{"x", scaled("x", chart.x.field)},
                         {"y", scaled("y", layer.y)},
                         {"size", {{"value", 48}}},
                         {"fill", color_of(layer)}});
  points["encode"]["hover"] = {{"size", {{"value", 110}}}};
  return points;
}

void add_marks(const LineChart& chart, const Layer& layer, Json& marks) {
  switch (layer.mark) {
    case Layer::Mark::rule:
    case Layer::Mark::upright:
      marks.push_back(rule_of(chart, layer));
      break;
    case Layer::Mark::points:
      marks.push_back(points_of(chart, layer));
      break;
    case Layer::Mark::band:
      marks.push_back(band_of(chart, layer));
      break;
    case Layer::Mark::line:
    case Layer::Mark::dashes:
      marks.push_back(line_of(chart, layer));
      marks.push_back(hover_points(chart, layer));
      break;
  }
}

/// Leaves out rows that the range of the axis has no place for.
void keep_in_range(const LineChart& chart, Json& data) {
  if (chart.y.range.empty()) return;
  for (const Layer& layer : chart.layers) {
    if (layer.mark == Layer::Mark::upright) continue;
    const std::string y = "datum[" + Json(layer.y).dump() + "]";
    const Json filter = {{"type", "filter"},
                         {"expr", y + " >= " + Json(chart.y.range[0]).dump() + " && " + y +
                                      " <= " + Json(chart.y.range[1]).dump()}};
    for (Json& table : data)
      if (table["name"] == shown(layer.table)) table["transform"].push_back(filter);
  }
}

Json x_sources(const LineChart& chart) {
  Json sources = Json::array();
  for (const Layer& layer : chart.layers)
    if (layer.mark != Layer::Mark::rule) sources.push_back(source(layer.table, chart.x.field));
  return sources;
}

Json y_sources(const LineChart& chart) {
  Json sources = Json::array();
  for (const Layer& layer : chart.layers) {
    if (layer.mark == Layer::Mark::upright) continue;
    sources.push_back(source(layer.table, layer.y));
    if (!layer.y2.empty()) sources.push_back(source(layer.table, layer.y2));
  }
  return sources;
}

}  // namespace

LineChart measured_and_theory(const Axis& x, const Axis& y, const std::string& series) {
  return {.x = x,
          .y = y,
          .layers = {{.table = "theory",
                      .mark = Layer::Mark::dashes,
                      .y = y.field,
                      .series = series,
                      .label = "theory"},
                     {.table = "measured",
                      .mark = Layer::Mark::points,
                      .y = y.field,
                      .series = series,
                      .label = "measured"}}};
}

Json spec_of(const LineChart& chart) {
  std::set<std::string> tables;
  for (const Layer& layer : chart.layers) tables.insert(layer.table);
  Json spec = empty_spec(tables, chart.sliders, chart.facet);
  keep_in_range(chart, spec["data"]);
  spec["title"] = title_of(chart.y);
  spec["scales"] = {scale_of("x", chart.x, x_sources(chart)),
                    scale_of("y", chart.y, y_sources(chart)),
                    colors_of(color_sources(chart.layers))};
  spec["axes"] = {axis_of("x", chart.x), axis_of("y", chart.y)};
  for (const Layer& layer : chart.layers) {
    add_marks(chart, layer, spec["marks"]);
    if (!layer.label.empty() && (!layer.series.empty() || is_reference(layer)))
      spec["usermeta"]["layers"].push_back({{"label", layer.label}, {"mark", name_of(layer.mark)}});
  }
  spec["usermeta"]["kind"] = "lines";
  return spec;
}

Json spec_of(const BarChart& chart) {
  Json spec = empty_spec({chart.table}, chart.sliders, "");
  spec["title"] = title_of(chart.y);
  Json x = scale_of("x", chart.x, one(source(chart.table, chart.x.field)));
  x["padding"] = 0.15;
  Json y = scale_of("y", chart.y, one(source(chart.table, chart.y.field)));
  if (chart.y.scale == Axis::Scale::linear) y["zero"] = true;
  spec["scales"] = {x, y};
  Json left = scaled("x", chart.x.field);
  Json now = {{"y", scaled("y", chart.y.field)},
              // On a logarithmic axis bars stand on its end.
              {"y2", {{"signal", chart.y.scale == Axis::Scale::log ? "height" : "scale('y', 0)"}}}};
  if (chart.series.empty()) {
    now["width"] = {{"scale", "x"}, {"band", 1}};
  } else {
    spec["scales"].push_back({{"name", "within"},
                              {"type", "band"},
                              {"range", {0, {{"signal", "bandwidth('x')"}}}},
                              {"domain", source(chart.table, chart.series)}});
    spec["scales"].push_back(colors_of(one(source(chart.table, chart.series))));
    left["offset"] = scaled("within", chart.series);
    now["width"] = {{"scale", "within"}, {"band", 1}};
    now["fill"] = scaled("color", chart.series);
  }
  now["x"] = left;
  Json bars = mark_of("rect", chart.table, now);
  bars["style"] = "bar";
  bars["encode"]["hover"] = {{"fillOpacity", {{"value", 0.7}}}};
  bars["encode"]["update"]["fillOpacity"] = {{"value", 1}};
  spec["axes"] = {axis_of("x", chart.x), axis_of("y", chart.y)};
  spec["marks"].push_back(bars);
  spec["usermeta"]["kind"] = "bars";
  spec["usermeta"]["x"] = chart.x.field;
  return spec;
}

Json spec_of(const HeatMap& chart) {
  Json spec = empty_spec({chart.table}, chart.sliders, chart.facet);
  spec["title"] = title_of(chart.y);
  Json colors = {{"name", "heat"},
                 {"type", "linear"},
                 {"range", chart.diverging ? "diverging" : "heatmap"},
                 {"domain", source(chart.table, chart.value)}};
  if (chart.diverging) colors["domainMid"] = 0;
  if (!chart.range.empty()) {
    colors["domain"] = chart.range;
    colors["clamp"] = true;
  }
  spec["scales"] = {scale_of("x", chart.x, one(source(chart.table, chart.x.field))),
                    scale_of("y", chart.y, one(source(chart.table, chart.y.field))), colors};
  spec["axes"] = {axis_of("x", chart.x), axis_of("y", chart.y)};
  spec["legends"] = one({{"fill", "heat"},
                         {"title", chart.title},
                         {"orient", "bottom"},
                         {"direction", "horizontal"},
                         {"gradientLength", 180}});
  // Without the half pixel, seams between cells shine through.
  Json cells = mark_of("rect", chart.table,
                       {{"x", scaled("x", chart.x.field)},
                        {"y", scaled("y", chart.y.field)},
                        {"width", {{"scale", "x"}, {"band", 1}, {"offset", 0.5}}},
                        {"height", {{"scale", "y"}, {"band", 1}, {"offset", 0.5}}},
                        {"fill", scaled("heat", chart.value)}});
  spec["marks"].push_back(cells);
  spec["usermeta"]["kind"] = "heat";
  spec["usermeta"]["x"] = chart.x.field;
  spec["usermeta"]["y"] = chart.y.field;
  return spec;
}

Json spec_of(const PlaneChart& chart) {
  Json spec = empty_spec({chart.table}, chart.sliders, "");
  spec["title"] = title_of(chart.y);
  spec["scales"] = {scale_of("x", chart.x, one(source(chart.table, chart.x.field))),
                    scale_of("y", chart.y, one(source(chart.table, chart.y.field)))};
  spec["axes"] = {axis_of("x", chart.x), axis_of("y", chart.y)};
  const Layer layer{.table = chart.table, .y = chart.y.field, .series = chart.series};
  spec["scales"].push_back(colors_of(color_sources({layer})));
  const Json x = scaled("x", chart.x.field), y = scaled("y", chart.y.field);
  if (chart.sliders.empty()) {
    spec["marks"].push_back(
        grouped(chart.series, chart.table,
                mark_of("line", chart.table, {{"x", x}, {"y", y}, {"stroke", color_of(layer)}})));
  } else {  // an arrow to where the sliders stand, and faintly where it can point
    Json places = mark_of("symbol", chart.table,
                          {{"x", x},
                           {"y", y},
                           {"size", {{"value", 5}}},
                           {"fill", color_of(layer)},
                           {"opacity", {{"value", 0.35}}}});
    places["from"]["data"] = chart.table;
    places["interactive"] = false;
    spec["marks"].push_back(places);
    spec["marks"].push_back(mark_of("rule", chart.table,
                                    {{"x", {{"scale", "x"}, {"value", 0}}},
                                     {"y", {{"scale", "y"}, {"value", 0}}},
                                     {"x2", x},
                                     {"y2", y},
                                     {"stroke", color_of(layer)},
                                     {"strokeWidth", {{"value", 2.5}}}}));
  }
  spec["marks"].push_back(
      mark_of("symbol", chart.table,
              {{"x", x}, {"y", y}, {"size", {{"value", 90}}}, {"fill", color_of(layer)}}));
  spec["usermeta"]["kind"] = "plane";
  return spec;
}

}  // namespace rapt::lab
