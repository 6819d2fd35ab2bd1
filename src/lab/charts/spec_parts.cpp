#include "lab/charts/spec_parts.h"

namespace rapt::lab {
using namespace detail;
namespace {

/// Whether a row has the value of a signal, or no such field at all.
Json filter_of(const std::string& field, const std::string& signal) {
  const std::string value = "datum[" + Json(field).dump() + "]";
  return {
      {"type", "filter"},
      {"expr", signal + " === null || !isDefined(" + value + ") || " + value + " === " + signal}};
}

// Numbers far from 1 are clearer as powers.
const char* const label_text =
    "!isNumber(datum.value) ? datum.value : datum.value !== 0 && (abs(datum.value) < 0.001 || "
    "abs(datum.value) >= 1e6) ? format(datum.value, '.1~e') : format(datum.value, ',')";

}  // namespace

std::string path_of(const std::string& field) {
  std::string path;
  for (const char c : field) {
    if (c == '.' || c == '[' || c == ']' || c == '\\' || c == '\'' || c == '"') path += '\\';
    path += c;
  }
  return path;
}

Json empty_spec(const std::set<std::string>& tables, const std::vector<Slider>& sliders,
                const std::string& facet) {
  Json signals = Json::array(), filters = Json::array(), data = Json::array(),
       controls = Json::array();
  for (const Slider& slider : sliders) {
    const std::string signal = "slider" + std::to_string(signals.size());
    signals.push_back({{"name", signal}, {"value", nullptr}});
    filters.push_back(filter_of(slider.field, signal));
    controls.push_back({{"signal", signal},
                        {"field", slider.field},
                        {"title", slider.title},
                        {"start", slider.start}});
  }
  if (!facet.empty()) {
    signals.push_back({{"name", "panel"}, {"value", nullptr}});
    filters.push_back(filter_of(facet, "panel"));
  }
  for (const std::string& table : tables) {
    data.push_back({{"name", table}});
    data.push_back({{"name", shown(table)}, {"source", table}, {"transform", filters}});
  }
  return {{"width", 640},
          {"height", 300},
          {"padding", 4},
          {"autosize", {{"type", "fit"}, {"contains", "padding"}}},
          {"signals", signals},
          {"data", data},
          {"scales", Json::array()},
          {"axes", Json::array()},
          {"marks", Json::array()},
          {"usermeta", {{"sliders", controls}, {"facet", facet}, {"layers", Json::array()}}}};
}

Json source(const std::string& table, const std::string& field) {
  return {{"data", table}, {"field", path_of(field)}};
}

Json scale_of(const std::string& name, const Axis& axis, const Json& sources) {
  Json scale = {{"name", name},
                {"range", name == "x" ? "width" : "height"},
                {"domain", {{"fields", sources}}}};
  if (axis.scale == Axis::Scale::band) {
    scale["type"] = "band";
    scale["padding"] = 0;
    return scale;
  }
  const bool logarithmic = axis.scale == Axis::Scale::log;
  scale["type"] = logarithmic ? "log" : "linear";
  if (logarithmic && name == "x") scale["base"] = 2;  // lengths and dimensions double
  scale["zero"] = false;
  scale["nice"] = name == "y" && axis.range.empty() && !logarithmic;
  if (!axis.range.empty()) {
    scale["domain"] = axis.range;
    scale["clamp"] = false;
  }
  return scale;
}

Json axis_of(const std::string& scale, const Axis& axis) {
  const bool x = scale == "x", band = axis.scale == Axis::Scale::band;
  Json made = {{"scale", scale},
               {"orient", x ? "bottom" : "left"},
               {"grid", !band},
               {"labelOverlap", band ? "parity" : "greedy"},
               {"labelSeparation", 6},
               {"encode", {{"labels", {{"update", {{"text", {{"signal", label_text}}}}}}}}}};
  if (x) made["title"] = axis.title;
  if (!x && axis.scale == Axis::Scale::linear) made["tickCount"] = 6;
  // Powers of ten alone where there are some, else the values between them, too.
  if (!x && axis.scale == Axis::Scale::log)
    made["tickCount"] = {{"signal",
                          "log(domain('y')[1] / domain('y')[0]) >= 2 * LN10 ? "
                          "floor(log(domain('y')[1] / domain('y')[0]) / LN10) : 5"}};
  return made;
}

Json colors_of(const Json& sources) {
  return {{"name", "color"},
          {"type", "ordinal"},
          {"range", "category"},
          {"domain", {{"fields", sources}}}};
}

Json title_of(const Axis& y) {
  return {{"text", y.title}, {"anchor", "start"}, {"frame", "bounds"}, {"offset", 8}};
}

Json scaled(const std::string& scale, const std::string& field) {
  return {{"scale", scale}, {"field", path_of(field)}};
}

Json mark_of(const std::string& type, const std::string& table, Json now) {
  now["tooltip"] = {{"signal", "datum"}};
  return {{"type", type}, {"from", {{"data", shown(table)}}}, {"encode", {{"update", now}}}};
}

Json grouped(const std::string& series, const std::string& table, Json mark) {
  if (series.empty()) return mark;
  mark["from"] = {{"data", "one"}};
  return {{"type", "group"},
          {"from",
           {{"facet", {{"name", "one"}, {"data", shown(table)}, {"groupby", path_of(series)}}}}},
          {"marks", Json::array({mark})}};
}

}  // namespace rapt::lab
