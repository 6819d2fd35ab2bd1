#include <algorithm>
#include <array>

#include "lab/charts/figure.h"
#include "lab/page/assets.h"

namespace rapt::lab {
using namespace detail;
namespace {

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (std::size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

std::string escaped(std::string text) {
  text = replaced(std::move(text), "&", "&amp;");
  text = replaced(std::move(text), "<", "&lt;");
  text = replaced(std::move(text), ">", "&gt;");
  return replaced(std::move(text), "\"", "&quot;");
}

constexpr std::array markup_tags = {"b", "i", "code", "sub", "sup"};

/// Text in which only the tags above are tags.
std::string marked_up(const std::string& text) {
  std::string html = escaped(text);
  for (const std::string tag : markup_tags) {
    html = replaced(std::move(html), "&lt;" + tag + "&gt;", "<" + tag + ">");
    html = replaced(std::move(html), "&lt;/" + tag + "&gt;", "</" + tag + ">");
  }
  return html;
}

/// The same without them.
std::string unmarked(std::string text) {
  for (const std::string tag : markup_tags) {
    text = replaced(std::move(text), "<" + tag + ">", "");
    text = replaced(std::move(text), "</" + tag + ">", "");
  }
  return text;
}

// Nothing within a script element may end it. JSON may escape any solidus; in JavaScript "</" may
// be the middle of a regular expression.
std::string json_text(const Json& json) {
  return replaced(replaced(json.dump(), "</", "<\\/"), "<!--", "\\u003c!--");
}
std::string script_text(std::string_view text) {
  return replaced(std::string(text), "</script", "<\\/script");
}

std::string id_of(const Section& section, const Figure& figure) {
  return section.name + "-" + figure.name;
}

/// {"fields": names, "rows": values}: objects would repeat the names in every row.
Json by_columns(const Json& table, const std::vector<std::string>& first = {}) {
  Json fields = first, rows = Json::array();
  for (const Json& object : table)
    for (const auto& [name, value] : object.items())
      if (std::ranges::find(fields, Json(name)) == fields.end()) fields.push_back(name);
  for (const Json& object : table) {
    Json row = Json::array();
    for (const Json& name : fields) row.push_back(object.value(name.get<std::string>(), Json()));
    rows.push_back(std::move(row));
  }
  return {{"fields", fields}, {"rows", rows}};
}

Json drawn_data(const Page& page) {
  Json figures = Json::object();
  for (const Section& section : page.sections)
    for (const Figure& figure : section.figures) {
      Json tables = Json::object();
      for (const auto& [name, table] : figure.data.items()) tables[name] = by_columns(table);
      figures[id_of(section, figure)] = {{"spec", figure.spec}, {"data", tables}};
    }
  return figures;
}

std::string cell_text(const Json& value) {
  return value.is_string() ? marked_up(value.get<std::string>()) : escaped(value.dump());
}

/// A figure without a spec is its tables.
std::string plain_tables(const Figure& figure) {
  std::string html;
  for (const auto& [name, table] : figure.data.items()) {
    const Json columns = by_columns(table, figure.columns);
    html += "<div class=\"plain\"><table><tr>";
    for (const Json& field : columns["fields"]) html += "<th>" + cell_text(field) + "</th>";
    html += "</tr>\n";
    for (const Json& row : columns["rows"]) {
      html += "<tr>";
      for (const Json& value : row) html += "<td>" + cell_text(value) + "</td>";
      html += "</tr>\n";
    }
    html += "</table></div>\n";
  }
  return html;
}

std::string figure_html(const Section& section, const Figure& figure) {
  const std::string id = id_of(section, figure);
  std::string html =
      "<figure id=\"" + escaped(id) + "\">\n<h3>" + marked_up(figure.title) + "</h3>\n";
  if (figure.spec.is_null())
    html += plain_tables(figure);
  else
    html +=
        "<div class=\"sliders\"></div>\n<div class=\"legend\"></div>\n<div "
        "class=\"charts\"></div>\n";
  html += "<p class=\"text\">" + marked_up(figure.text) + "</p>\n";
  if (!section.command.empty())
    html += "<p class=\"again\">Make it again: <code>" + escaped(section.command) + "</code></p>\n";
  if (!figure.spec.is_null()) html += "<details><summary>The numbers</summary></details>\n";
  return html + "</figure>\n";
}

std::string section_html(const Section& section) {
  std::string html = "<section id=\"" + escaped(section.name) + "\">\n<h2>" +
                     marked_up(section.title) + "</h2>\n<p>" + marked_up(section.text) + "</p>\n";
  for (const Figure& figure : section.figures) html += figure_html(section, figure);
  if (!section.takeaway.empty())
    html += "<div class=\"takeaway\"><p><b>What to take away.</b> " + marked_up(section.takeaway) +
            "</p></div>\n";
  return html + "</section>\n";
}

std::string header_html(const Page& page) {
  std::string html = "<header>\n<h1>" + marked_up(page.title) + "</h1>\n<p>" +
                     marked_up(page.text) + "</p>\n<div class=\"facts\">";
  for (const std::string& fact : page.facts) html += "<p>" + marked_up(fact) + "</p>";
  html += "</div>\n</header>\n";
  if (vega_parts().empty())
    html +=
        "<p class=\"notice\">This rapt was built without Vega (Debian package libjs-vega), so "
        "that there are tables here instead of pictures.</p>\n";
  if (!page.words.empty()) {
    html += "<dl>\n";
    for (const Word& word : page.words)
      html += "<dt>" + marked_up(word.word) + "</dt><dd>" + marked_up(word.meaning) + "</dd>\n";
    html += "</dl>\n";
  }
  if (page.sections.size() < 2) return html;
  html += "<nav aria-label=\"Contents\"><p><b>In short</b></p><ol>\n";
  for (const Section& section : page.sections)
    html += "<li><a href=\"#" + escaped(section.name) + "\">" + marked_up(section.title) +
            "</a><br>" + marked_up(section.takeaway) + "</li>\n";
  return html + "</ol></nav>\n";
}

std::string vega_script() {
  if (vega_parts().empty()) return "";
  std::string html =
      "<script type=\"text/plain\" id=\"vega-copyright\">\n" + script_text(vega_copyright) +
      "\nWith parts of D3, copyright 2010-2021 Mike Bostock, ISC licence.\n</script>\n"
      "<script>\nconst vegaParts = {\n";
  for (const VegaPart& part : vega_parts())
    html += "\"" + std::string(part.name) + "\": function (exports, module, require) {\n" +
            script_text(part.text) + "\n},\n";
  return html + "};\n</script>\n";
}

// Nothing may be fetched, whatever a script tries.
constexpr const char* head =
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
    "script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:\">\n";

}  // namespace

std::string html_of(const Page& page) {
  std::string html = head;
  html += "<title>" + escaped(unmarked(page.title)) + "</title>\n<style>\n" +
          std::string(page_style) + "</style>\n</head>\n<body>\n" + header_html(page) + "<main>\n";
  for (const Section& section : page.sections) html += section_html(section);
  html += "</main>\n<script type=\"application/json\" id=\"figures\">\n" +
          json_text(drawn_data(page)) + "\n</script>\n";
  return html + vega_script() + "<script>\n" + script_text(page_script) +
         "</script>\n</body>\n</html>\n";
}

Json json_of(const Page& page) {
  Json sections = Json::array();
  for (const Section& section : page.sections) {
    Json figures = Json::array();
    for (const Figure& figure : section.figures)
      figures.push_back({{"name", figure.name},
                         {"title", unmarked(figure.title)},
                         {"text", unmarked(figure.text)},
                         {"data", figure.data}});
    sections.push_back({{"name", section.name},
                        {"title", unmarked(section.title)},
                        {"text", unmarked(section.text)},
                        {"takeaway", unmarked(section.takeaway)},
                        {"command", section.command},
                        {"figures", figures}});
  }
  return {{"title", unmarked(page.title)}, {"facts", page.facts}, {"sections", sections}};
}

}  // namespace rapt::lab
