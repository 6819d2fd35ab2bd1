#pragma once

#include "formats/config/json.h"
#include "rapt/health.h"

namespace rapt::lab {

/// Everything but the maps.
Json json_of(const ModelHealth& health);
/// Places of some distances in ModelHealth::distances: near ones, powers of two and those between.
std::vector<std::size_t> shown_distances(const ModelHealth& health);

}  // namespace rapt::lab
