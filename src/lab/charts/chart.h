#pragma once

#include <string>
#include <vector>

#include "formats/config/json.h"

namespace rapt::lab {
using namespace detail;

/// A field of a table along an axis.
struct Axis {
  enum class Scale { linear, log, band };
  std::string field;
  std::string title;
  Scale scale = Scale::linear;
  std::vector<double> range = {};  // from, to; empty: what the table has
};

/// Rows of a table that are shown: those whose `field` has the slider's value.
struct Slider {
  std::string field;  // numbers; the slider goes over those that occur
  std::string title;
  double start = 0;  // the value that occurs nearest to it is shown first
};

/// Marks of one table in a chart of lines.
struct Layer {
  // rule: across at y, upright: from top to bottom at x
  enum class Mark { line, dashes, points, band, rule, upright };
  std::string table;
  Mark mark = Mark::line;
  std::string y;            // field; band: the lower edge
  std::string y2 = {};      // band: the upper edge
  std::string series = {};  // field whose values have a colour each; "": one colour
  std::string label = {};   // what the legend calls the layer if there are several
};

/// Lines, points and bands over one axis.
struct LineChart {
  Axis x, y;
  std::vector<Layer> layers;
  std::vector<Slider> sliders = {};
  std::string facet = {};  // field with a chart for each value, in a row
};

/// Points of the table "measured" on dashes of the table "theory"; both have the fields of the axes
/// and of the series.
LineChart measured_and_theory(const Axis& x, const Axis& y, const std::string& series);

/// One bar for each x.
struct BarChart {
  std::string table;
  Axis x, y;
  std::string series = {};  // bars of one x are next to each other, in different colours
  std::vector<Slider> sliders = {};
};

/// Cells of x and y, coloured by a number.
struct HeatMap {
  std::string table;
  Axis x, y;  // band
  std::string value;
  std::string title;       // of the colours
  bool diverging = false;  // around 0
  std::vector<double> range = {};
  std::vector<Slider> sliders = {};
  std::string facet = {};
};

/// Arrows from the middle, or a path through points in a plane: both axes alike.
struct PlaneChart {
  std::string table;
  Axis x, y;
  std::string series = {};
  std::vector<Slider> sliders = {};
};

// Specs of Vega. Hovering over a mark shows all fields of its row.
Json spec_of(const LineChart& chart);
Json spec_of(const BarChart& chart);
Json spec_of(const HeatMap& chart);
Json spec_of(const PlaneChart& chart);

}  // namespace rapt::lab
