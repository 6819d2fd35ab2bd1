#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rapt::cli {

/// Token ids separated by spaces, or as a list of JSON or Python; nothing if the text has anything
/// else in it.
std::optional<std::vector<std::int32_t>> token_ids_in(std::string text);

}  // namespace rapt::cli
