#pragma once

#include <string>
#include <string_view>

#include "formats/config/json.h"

namespace rapt::detail {

/// A file may be this long, and its values nested this deep, as those of JSON.
inline constexpr Index toml_bytes = Index{1} << 20;
inline constexpr Index toml_depth = JsonLimits{}.depth;

/// The value of a TOML text, as JSON has it: tables are objects, numbers stay whole or real. Dates
/// are refused, and so is what is nested too deep. Throws std::runtime_error with the line at which
/// the text is wrong.
Json parse_toml(std::string_view text, const std::string& source);
Json read_toml(const std::string& path);

}  // namespace rapt::detail
