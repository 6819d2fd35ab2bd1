#pragma once

#include <string>
#include <vector>

#include "formats/config/json.h"

namespace rapt::lab {
using namespace detail;

/// A picture, what it says, and every number behind it.
struct Figure {
  std::string name;   // within its experiment: letters, digits and dashes
  std::string title;  // the finding, one sentence
  std::string text;   // two or three sentences: what is drawn, what follows
  /// Tables by name, each an array of objects with the same fields: what the picture is drawn from.
  Json data;
  Json spec;  // of Vega, reading these tables; chart.h makes it. null: the tables are shown
  std::vector<std::string> columns = {};  // order of a shown table's fields; empty: by name
};

/// Figures that answer one question.
struct Section {
  std::string name;          // what `rapt lab NAME` asks for
  std::string title;         // the question
  std::string text;          // its answer in a few sentences; may hold <b>, <i>, <code> and <sub>
  std::string command = {};  // what makes it again
  std::vector<Figure> figures = {};
  std::string takeaway = {};  // below the figures, as text
};

/// What a page calls something, and what that is.
struct Word {
  std::string word, meaning;
};

/// What a page shows.
struct Page {
  std::string title;
  std::string text;                // below the title, as above
  std::vector<std::string> facts;  // one line each: version, machine, date
  std::vector<Section> sections = {};
  std::vector<Word> words = {};  // before the sections
};

/// One file that needs nothing else: scripts, data and style inside. Light and dark, any width.
std::string html_of(const Page& page);
/// Titles, texts and tables of the page.
Json json_of(const Page& page);

}  // namespace rapt::lab
