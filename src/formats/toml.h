#pragma once

#include <string>
#include <string_view>

#include "formats/json.h"

namespace rapt {

/// The value of a TOML text, as JSON has it: tables are objects, numbers stay whole or real. Dates
/// are refused. Throws std::runtime_error with the line at which the text is wrong.
Json parse_toml(std::string_view text, const std::string& source);
/// At most 1 MiB.
Json read_toml(const std::string& path);

}  // namespace rapt
