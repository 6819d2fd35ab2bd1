#pragma once

#include "formats/config/json.h"
#include "rapt/models/heads.h"

namespace rapt::detail {

/// Everything except the maps.
Json json_of(const HeadReport& report);
/// Indices into HeadReport::distances: near ones, powers of two and some between.
std::vector<std::size_t> shown_distances(const HeadReport& report);

}  // namespace rapt::detail
