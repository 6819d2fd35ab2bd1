#pragma once

#include <set>
#include <string>
#include <vector>

#include "lab/charts/chart.h"

namespace rapt::lab {
using namespace detail;

/// A field as Vega's paths name it: dots and brackets would lead into a value.
std::string path_of(const std::string& field);

/// Rows of a table that the sliders and the panel leave.
inline std::string shown(const std::string& table) { return table + " shown"; }

/// A chart with its tables, to which scales, axes and marks are added. Each table is there twice:
/// whole, which is what axes are made for, so that they stand still when a slider moves; and what
/// is shown of it. Rows without the field of a slider or a panel are always shown.
Json empty_spec(const std::set<std::string>& tables, const std::vector<Slider>& sliders,
                const std::string& facet);

/// {"data": table, "field": field}
Json source(const std::string& table, const std::string& field);

/// A scale over what the sources have, or over the range of the axis.
Json scale_of(const std::string& name, const Axis& axis, const Json& sources);
/// The axis of the scale "x" at the bottom, or of "y" at the left.
Json axis_of(const std::string& scale, const Axis& axis);
/// Named colours for what the sources have.
Json colors_of(const Json& sources);
/// The y axis is named above the chart, where a narrow page has room for it.
Json title_of(const Axis& y);

/// {"scale": scale, "field": field}
Json scaled(const std::string& scale, const std::string& field);
/// A mark for each row that is shown; `now` holds what depends on the row. Hovering tells the row.
Json mark_of(const std::string& type, const std::string& table, Json now);
/// The same marks once for each value of a field, as lines need it. "": all rows are one.
Json grouped(const std::string& series, const std::string& table, Json mark);

}  // namespace rapt::lab
